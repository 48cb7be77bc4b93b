"""What users deploy: a model behind its defence in one object, kept in a file; its proofs as results files."""

from certmask.deployed.defence import Answer, Defence, Proof
from certmask.deployed.evaluation import Evaluation, certify

__all__ = ["Answer", "Defence", "Evaluation", "Proof", "certify"]
