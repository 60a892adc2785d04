"""Where checkpoints live: disks, object stores, free space, injected faults."""
