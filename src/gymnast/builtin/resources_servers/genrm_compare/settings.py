"""The settings of genrm_compare."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import FiniteFloat, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from gymnast.kit import EnvironmentSettings, ModelRef, ScoringSettings

from .aggregation import Bonuses, ComparisonStrategy

_PRINCIPLE: Final = (
    "Compare the two responses as a fair and careful reader. First work out for yourself what a good response to the "
    "conversation would be. Then check each response for errors, for what it leaves out, and for whether it does what "
    "was asked; if the request is unclear, asking back is better than guessing. Prefer the one that is right and "
    "helpful, keeps to the point, and is no longer than it needs to be. Count ideas and style where they matter."
)


class GenRMCompareSettings(ScoringSettings, EnvironmentSettings):
    genrm_model_server: ModelRef
    genrm_responses_create_params: dict[str, Any]
    """Sampling parameters of the judge's calls; their `input` and `metadata` are replaced."""
    num_rollouts_per_prompt: int = 1
    """Rollouts of a prompt that are compared; with 1 or less, every rollout gets `default_score`."""
    comparison_strategy: ComparisonStrategy = "circular"
    num_judges_per_comparison: PositiveInt = 1
    """How often the judge compares each pair."""
    use_principle: bool = False
    """Send the judge a principle by which to compare: the row's `principle`, or the default one."""
    default_principle: str = _PRINCIPLE
    aggregator_method: Literal["simple_tiebreaker"] = "simple_tiebreaker"
    reasoning_bonus: FiniteFloat = 0.0
    """For the shortest reasoning, if its reward is among the best."""
    answer_bonus: FiniteFloat = 0.0
    """For the shortest answer, if its reward is among the best."""
    top_percentile: FiniteFloat = 0.2
    """The share of rewards that are among the best."""
    group_reasoning_length_penalty_coeff: FiniteFloat = 0.0
    group_answer_length_penalty_coeff: FiniteFloat = 0.0
    group_style_penalty_coeff: FiniteFloat = 0.0
    default_score: FiniteFloat = 3.0
    """Of a rollout that was compared with nothing; of a comparison without scores, unless scoring is strict."""
    default_ranking: FiniteFloat = 3.5
    debug_logging: bool = False
    """Log every comparison and all rewards."""
    genrm_parse_retries: NonNegativeInt = 3
    """Further calls after a response without scores, or a temporary error."""
    genrm_parse_retry_sleep_s: NonNegativeFloat = 0.2
    genrm_endpoint_max_concurrency: PositiveInt | None = 64
    """Maximum number of calls to the judge in flight; null for no limit."""
    genrm_timeout_s: PositiveFloat = 600.0
    """Timeout of one call."""
    cohort_timeout_s: PositiveFloat = 570.0
    """How long a rollout waits for the others of its prompt. Keep the agent's verify_timeout_s longer."""
    incomplete_cohorts: Literal["fail", "compare"] = "fail"
    """If not all come in time: fail those that did, or compare them with each other."""

    @field_validator("top_percentile")
    @classmethod
    def _is_share(cls, value: float) -> float:
        if not 0 <= value <= 1:
            raise ValueError("must be between 0 and 1")
        return value

    @property
    def bonuses(self) -> Bonuses:
        return Bonuses(
            self.reasoning_bonus,
            self.answer_bonus,
            self.top_percentile,
            self.group_reasoning_length_penalty_coeff,
            self.group_answer_length_penalty_coeff,
            self.group_style_penalty_coeff,
            counts_wide_emoji=self.scoring != "strict",
        )
