"""What `learn` decided for a model of blocks, in a form that prints well."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BlocksReport:
    """The engine, and why it.

    Attributes:
        engine: "exact" or "compressed".
        reason: why this engine serves the model.
        order: components of the prior, or places for components of the filter.
        choices: other decisions, as lines of a name and a text.
        seconds: time of `learn`.
    """

    engine: str
    reason: str
    order: int
    choices: tuple[tuple[str, str], ...]
    seconds: float

    def __str__(self) -> str:
        lines = [
            ("engine", f"blocks, {self.engine}"),
            ("because", self.reason),
            ("components", str(self.order)),
            *self.choices,
            ("learned in", f"{self.seconds:.2f} s"),
        ]
        return "\n".join(f"{name:<21}{text}" for name, text in lines)
