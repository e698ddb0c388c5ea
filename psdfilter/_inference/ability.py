"""What some engines offer and others do not."""

from enum import StrEnum


class Ability(StrEnum):
    """An ability, in the words of a refusal."""

    INPUTS = "inputs"
    PARTLY_MISSING = "an observation with single coordinates missing"
    SMOOTHER = "a smoother"
    LAG = "a smoother with a lag"
    LAG_OF_SENSORS = "a smoother with a lag for several observations at one time"
    SMOOTHED_SUMMARIES = 'a smoother with keep="summaries"'
    PAIRS = "the law of two neighbouring states"
    JOINT = "the law of y as a PSD model"
    OBSERVED_LAWS = "the law of y"
    ERRORS = "an error estimate"
    CERTIFICATE = "a certificate"
    GRADIENTS = "a likelihood of parameters"


class NotOffered(ValueError):
    """Something was asked of an engine that it does not offer."""

    def __init__(self, engine: str, ability: Ability, remedy: str = ""):
        """Name the engine and the ability, and what to do instead."""
        super().__init__(f'engine "{engine}" does not offer {ability}{remedy}')


class NoDensity(ValueError):
    """A learned density was asked of an engine that has none in that form."""

    def __init__(self, engine: str, what: str):
        """Name the engine, and the one that has it."""
        options = '(observation="joint")' if what == "observation" else "()"
        super().__init__(
            f'engine "{engine}" has no PSD model of its {what}; engine=psdfilter.engines.Nodes'
            f"{options} learns one"
        )
