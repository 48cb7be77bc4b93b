"""Certification on many machines, with the rows of one: Ray reads the photos, workers hold the defence once each.

Ray itself is imported when a run begins; nothing of it is needed on one machine. Nothing is imported here, so that
processes of Ray's which only count or carry need not load torch.
"""
