"""Data of LiBai's common configs: ``roberta_dataset``."""

from etude.dialects.libai.lazy.call import LazyCall

tokenization = {
    "tokenizer": LazyCall("libai.tokenizer.RobertaTokenizer")(
        vocab_file="roberta-vocab.json", merges_file="roberta-merges.txt"
    ),
    "append_eod": False,
    "make_vocab_size_divisible_by": 128,
}
dataloader = {
    "train": LazyCall("libai.data.build.build_nlp_train_val_test_loader")(
        dataset=[
            LazyCall("libai.data.datasets.RobertaDataset")(
                name="roberta",
                data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                indexed_dataset=LazyCall("libai.data.data_utils.indexed_dataset.get_indexed_dataset")(
                    data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                    data_impl="mmap",
                    skip_warmup=False,
                ),
                max_seq_length=514,
                mask_lm_prob=0.15,
                short_seq_prob=0.0,
                seed=1234,
                masking_style="bert",
            )
        ],
        train_val_test_num_samples=None,
        splits=[[949.0, 50.0, 1.0]],
        weights=[1.0],
        num_workers=4,
    ),
    "test": [
        LazyCall("libai.data.build.build_nlp_test_loader")(
            dataset=LazyCall("libai.data.datasets.RobertaDataset")(
                name="roberta",
                data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                indexed_dataset=LazyCall("libai.data.data_utils.indexed_dataset.get_indexed_dataset")(
                    data_prefix="./data/libai_dataset/loss_compara_content_sentence",
                    data_impl="mmap",
                    skip_warmup=False,
                ),
                max_num_samples=10,
                max_seq_length=514,
                mask_lm_prob=0.15,
                short_seq_prob=0.1,
                seed=1234,
                masking_style="bert",
            ),
            test_batch_size=4,
        )
    ],
}
