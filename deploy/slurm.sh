#!/usr/bin/env bash
# sbatch deploy/slurm.sh --model=resnet50 --train_dir=/shared/run --save_model_secs=300
#
# One task on each node: the first is controller and ps, each of the others a worker.
# The nodes' ports must be reachable from nowhere else (see deploy/README.md), nor by
# other users' jobs on the nodes: each is the job's alone, with all its cores.
#SBATCH --job-name=towers
#SBATCH --nodes=3
#SBATCH --exclusive
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --signal=B:TERM@120
set -eu
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
workers=$(printf '%s:2222,' "${nodes[@]:1}")
hosts=(
  --controller_host="${nodes[0]}:2222"
  --ps_hosts="${nodes[0]}:2223"
  --worker_hosts="${workers%,}"
  --num_gpus="${SLURM_GPUS_ON_NODE:-4}"
  --device=gpu
)
start() { # job, index, node, then the flags
  srun --nodes=1 --ntasks=1 --overlap --nodelist="$3" \
    python -m towers.train --job_name="$1" --task_index="$2" "${hosts[@]}" "${@:4}" &
}
start ps 0 "${nodes[0]}" "$@"
for ((i = 1; i < ${#nodes[@]}; i++)); do start worker $((i - 1)) "${nodes[i]}" "$@"; done
start controller 0 "${nodes[0]}" "$@"
controller=$!
# Slurm announces the end of the job's time: the controller saves and tells the others.
told=
trap 'told=1; kill -TERM "$controller" || true' TERM
status=0
wait "$controller" || status=$?
if [ "$told" ]; then # the trap ended that wait, not the controller
  status=0
  wait "$controller" || status=$?
fi
wait
exit "$status"
