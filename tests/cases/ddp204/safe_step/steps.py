"""A step that is to survive bad batches."""


def safe_step(model, optimizer, x):
    """One step; False where it failed."""
    try:
        if x.isnan().any():
            raise RuntimeError("CUDA out of memory")
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
    except RuntimeError as error:
        if "out of memory" in str(error):
            return False
        raise
    optimizer.step()
    return True
