"""A user's program with mistakes that a type checker finds: mypy must want each comment."""

import ballast


def train() -> None:
    with ballast.Loader("unix:mine.sock", device="cpu", split="train") as loader:
        for batch in loader:
            print(batch["input_ids"], batch["max_seqlen"] + 1, batch.step_totals.label_tokens)
            print(batch["inptu_ids"])  # type: ignore[call-overload]
            print(batch["max_seqlen"].shape)  # type: ignore[attr-defined]
            print(batch.fields["weight"], batch.get("labels"))


def misspelt() -> None:
    ballast.Loader("unix:mine.sock", split="vaild")  # type: ignore[arg-type]
    ballast.Loader("unix:mine.sock", modules=["visoin"])  # type: ignore[list-item]
    ballast.Loader("unix:mine.sock", array="jax")  # type: ignore[arg-type]
