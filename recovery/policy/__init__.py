"""What to do next: `decide` over a job's history, a verdict and the limits. Pure and deterministic."""

from recovery.policy.decide import Decision, decide
from recovery.policy.settings import ArrayStop, Budgets, PolicySettings
from recovery.policy.situation import Ending, PastAttempt, Situation

__all__ = ["ArrayStop", "Budgets", "Decision", "Ending", "PastAttempt", "PolicySettings", "Situation", "decide"]
