"""Certification on many machines, with the rows of one: Ray reads the photos, workers hold the defence once each.

Ray itself is imported when a run begins; nothing of it is needed on one machine.
"""

from certmask.scale.driver import certify_on_ray
from certmask.scale.pool import Pool
from certmask.scale.setting import Setting

__all__ = ["Pool", "Setting", "certify_on_ray"]
