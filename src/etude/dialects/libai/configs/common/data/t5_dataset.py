"""Data of LiBai's common configs: ``t5_dataset``."""

from etude.dialects.libai.lazy.call import LazyCall

tokenization = {
    "setup": True,
    "tokenizer": LazyCall("libai.tokenizer.BertTokenizer")(
        vocab_file="./data/libai_dataset/bert-base-chinese-vocab.txt",
        do_lower_case=True,
        do_chinese_wwm=True,
        bos_token="[BOS]",
        eos_token="[EOS]",
        additional_special_tokens=[f"<extra_id_{index}>" for index in range(100)],
    ),
    "append_eod": False,
    "make_vocab_size_divisible_by": 128,
}
dataloader = {
    "train": LazyCall("libai.data.build.build_nlp_train_val_test_loader")(
        dataset=[
            LazyCall("libai.data.datasets.T5Dataset")(
                name="t5",
                data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                indexed_dataset=LazyCall("libai.data.data_utils.indexed_dataset.get_indexed_dataset")(
                    data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                    data_impl="mmap",
                    skip_warmup=False,
                ),
                max_seq_length=512,
                max_seq_length_dec=128,
                masked_lm_prob=0.15,
                short_seq_prob=0.1,
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
            dataset=LazyCall("libai.data.datasets.T5Dataset")(
                name="t5",
                data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                indexed_dataset=LazyCall("libai.data.data_utils.indexed_dataset.get_indexed_dataset")(
                    data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                    data_impl="mmap",
                    skip_warmup=False,
                ),
                max_num_samples=10,
                max_seq_length=512,
                max_seq_length_dec=128,
                masked_lm_prob=0.15,
                short_seq_prob=0.1,
                seed=1234,
            ),
            test_batch_size=4,
        )
    ],
}
