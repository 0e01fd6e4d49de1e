"""The traced run: what happens inside the workers (`worker`), the reader of their files (`store`) and the launcher."""
