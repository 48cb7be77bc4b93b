"""Engine rooms beside torch: what computes a network's logits."""
