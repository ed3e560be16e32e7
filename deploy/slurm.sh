#!/usr/bin/env bash
# sbatch deploy/slurm.sh --model=resnet50 --train_dir=/shared/run --save_model_secs=300
#
# A worker on each node, and on the first node the ps and the controller, too.  PYTHON is
# the interpreter if it is not `python`; sbatch passes it on.
#
# sbatch --no-kill deploy/slurm.sh --elastic ...
# sbatch --nodes=1 --array=1-4 deploy/slurm.sh --elastic --join=FIRST_NODE:2222 ...
#
# An elastic run, which goes on if a node is lost, but the first.  Jobs of a worker each,
# which joins that run; a job that ends lets its worker leave.
#
# The nodes' ports 2222 to 2224 must be reachable from nowhere else (see
# deploy/README.md), nor by other users' jobs on the nodes: each is the job's alone.
#SBATCH --job-name=towers
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
# On nodes without GPUs, remove the line above.  A node is one tower then; for more, add
# --num_gpus=N, and each has its share of the cores.
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --ntasks-per-node=1
# The log stays when the job is started again after a node was lost.
#SBATCH --requeue
#SBATCH --output=towers-%j.log
#SBATCH --open-mode=append
# Two minutes before the job's time is up, this script alone gets SIGTERM.
#SBATCH --signal=B:TERM@120
set -euo pipefail

refuse() { echo "error: $1" >&2; exit 2; }

[ "${SLURM_JOB_NODELIST:-}" ] ||
  refuse "SLURM_JOB_NODELIST is not set, so this is no job: sbatch deploy/slurm.sh ..."
names=$(scontrol show hostnames "$SLURM_JOB_NODELIST") && [ "$names" ] ||
  refuse "scontrol knows no nodes for SLURM_JOB_NODELIST=$SLURM_JOB_NODELIST"
mapfile -t nodes <<<"$names"
[ "${#nodes[@]}" = "${SLURM_JOB_NUM_NODES:-${#nodes[@]}}" ] ||
  refuse "the job has $SLURM_JOB_NUM_NODES nodes (SLURM_JOB_NUM_NODES), but \
SLURM_JOB_NODELIST=$SLURM_JOB_NODELIST names ${#nodes[@]}"
gpus=${SLURM_GPUS_ON_NODE:-0}
[[ $gpus =~ ^[0-9]+$ ]] || refuse "SLURM_GPUS_ON_NODE=$gpus is no number of GPUs"
for flag in "$@"; do
  case ${flag/#--/-} in
    -ps_hosts* | -worker_hosts* | -controller_host* | -job_name* | -task_index* | -local_cluster*)
      refuse "$flag: this script places the tasks, a worker on each of the \
${#nodes[@]} nodes; leave it out, and give sbatch --nodes" ;;
    -device=gpu)
      [ "$gpus" != 0 ] || refuse "$flag: the job has no GPUs; give sbatch \
--gpus-per-node, or leave it out for CPUs" ;;
  esac
done

job=controller joins=
case " $* " in
*" --join="*) job=worker joins=1 ;; # it is the only task of this job
*=between_graph*) job=worker ;; # worker 0 is the chief
esac
[ ! "$joins" ] || [ "${#nodes[@]}" = 1 ] ||
  refuse "--join: a job that joins has one node; give sbatch --nodes=1 --array=1-N"
flags=(--worker_hosts="$(IFS=,; echo "${nodes[*]/%/:2224}")")
[ "$joins" ] || flags+=(--ps_hosts="${nodes[0]}:2223")
[ "$job" = worker ] || flags+=(--controller_host="${nodes[0]}:2222")
if [ "$gpus" != 0 ]; then
  flags+=(--device=gpu --num_gpus="$gpus")
else
  echo "The job has no GPUs: its towers run on the nodes' CPUs." >&2
  flags+=(--device=cpu)
fi
# Slurm kills 30 s (KillWait) after it asked to stop.  After a node was lost, the
# controller may be on any node.
flags+=(--stop_grace_secs=25 --shared_train_dir "$@")

of_task() { # job, index: the command in `words`; GPUs are for workers only
  words=("${PYTHON:-python}" -m towers.train --job_name="$1" --task_index="$2" "${flags[@]}")
  [ "$1" = worker ] || words=(env CUDA_VISIBLE_DEVICES= "${words[@]}")
}

killed() { # status: whether a signal ended a task that may be started again
  case $1 in 129 | 130 | 141 | 143) return 1 ;; esac
  [ "$1" -gt 128 ]
}

serve() { # job, index, node
  local status try begun
  of_task "$1" "$2"
  for try in 1 2 3 4; do
    status=0 begun=$SECONDS
    srun --nodes=1 --ntasks=1 --overlap --cpu-bind=quiet,none --nodelist="$3" \
      "${words[@]}" 2>&1 | (trap '' TERM; exec sed -u "s/^/[$1 $2] /") || status=$?
    if [ "$status" = 1 ] && [ $((SECONDS - begun)) -lt 5 ]; then
      sleep 5 # srun could not start it, as the node was not ready
    else
      killed "$status" || return 0
    fi
    echo "$1 $2 on $3 ended with status $status; it is started again" >&2
  done
}
[ "$joins" ] || serve ps 0 "${nodes[0]}" &
for i in "${!nodes[@]}"; do
  [ "$job $i" = "worker 0" ] || serve worker "$i" "${nodes[i]}" &
done

# srun ends its task on SIGTERM without waiting, and this task has to save: no srun.
of_task "$job" 0
told= process=
trap 'told=1; kill -TERM "$process" 2>/dev/null || true' TERM
for try in 1 2 3 4; do
  "${words[@]}" &
  process=$! status=0 stopped=
  [ ! "$told" ] || kill -TERM "$process" # it came before this process was known
  wait "$process" || status=$?
  while [ "$told" ]; do # the trap ended that wait, not the controller
    told= stopped=1 next=0
    wait "$process" || next=$?
    [ "$next" = 127 ] || status=$next # 127: it had ended before
  done
  killed "$status" && [ ! "$stopped" ] || break
  echo "$job 0 ended with status $status; it is started again" >&2
done
# It has told the others to end.  Slurm ends those that are left.
for ((i = 0; i < 20; i++)); do [ "$(jobs -rp)" ] || break; sleep 1; done
exit "$status"
