"""Data of LiBai's common configs: ``gpt_dataset``."""

from etude.dialects.libai.lazy.call import LazyCall

tokenization = {
    "tokenizer": LazyCall("libai.tokenizer.GPT2Tokenizer")(
        vocab_file="./data/gpt_dataset/gpt2-vocab.json",
        merges_file="./data/gpt_dataset/gpt2-merges.txt",
        do_lower_case=True,
        do_chinese_wwm=True,
    ),
    "append_eod": False,
    "make_vocab_size_divisible_by": 128,
}
dataloader = {
    "train": LazyCall("libai.data.build.build_nlp_train_val_test_loader")(
        dataset=[
            LazyCall("libai.data.datasets.GPT2Dataset")(
                name="gpt-2",
                data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                indexed_dataset=LazyCall("libai.data.data_utils.indexed_dataset.get_indexed_dataset")(
                    data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                    data_impl="mmap",
                    skip_warmup=False,
                ),
                max_seq_length=1024,
                seed=1234,
            )
        ],
        train_val_test_num_samples=None,
        splits=[[949.0, 50.0, 1.0]],
        weights=[1.0],
        num_workers=4,
    ),
    "test": [
        LazyCall("libai.data.build.build_nlp_test_loader")(
            dataset=LazyCall("libai.data.datasets.GPT2Dataset")(
                name="gpt-2",
                data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                indexed_dataset=LazyCall("libai.data.data_utils.indexed_dataset.get_indexed_dataset")(
                    data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                    data_impl="mmap",
                    skip_warmup=False,
                ),
                max_seq_length=1024,
                max_num_samples=10,
                seed=1234,
            ),
            test_batch_size=4,
        )
    ],
}
