#!/bin/sh
# Start a config by torchx; dist.ddp is torchrun, on this machine, on SLURM or on Kubernetes (-s slurm, -s kubernetes).
#     pip install torchx
#     sh examples/launchers/torchx.sh examples/native/two_processes.yaml runs/torchx
set -e
exec torchx run -s local_cwd dist.ddp -j 1x2 --max_retries 3 -m etude -- train "$1" --folder "$2" --resume
