"""The engine without a config:  python examples/native/by_hand.py"""

import torch

import etude
from etude.data import Digits
from etude.metrics import Accuracy


def main(epochs: int = 10) -> etude.Run:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    trainer = etude.Trainer(
        model,
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        metrics=[Accuracy()],
    )
    run = trainer.fit(Digits("train"), val=Digits("val"), batch_size=64, epochs=epochs)
    print(f"{run.metrics['accuracy']:.1%} after {run.step} steps")
    return run


if __name__ == "__main__":
    main()
