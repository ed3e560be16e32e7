#!/usr/bin/env bash
# deploy/ssh.sh PS WORKER... -- FLAG...
#
# Starts a ps on the first machine and a worker on each of the others, over ssh, and
# the controller here.  The project must be installed, and this folder be there, on
# each.  The machines' port 2222 must be reachable from nowhere else (see
# deploy/README.md): name them by the addresses of a private network, WireGuard say.
set -eu
machines=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do machines+=("$1"); shift; done
[ "${#machines[@]}" -ge 2 ] || { echo "usage: $0 PS WORKER... -- FLAG..." >&2; exit 2; }
[ $# -eq 0 ] || shift
workers=$(printf '%s:2222,' "${machines[@]:1}")
hosts=(
  --controller_host="${CONTROLLER:-$(hostname)}:2222"
  --ps_hosts="${machines[0]}:2222"
  --worker_hosts="${workers%,}"
)
there() { # machine, job, index, then the flags
  local words
  words=$(printf '%q ' python -m towers.train \
    --job_name="$2" --task_index="$3" "${hosts[@]}" "${@:4}")
  # With a terminal, what runs there ends with the connection.
  ssh -tt "$1" "cd $(printf %q "$PWD") && $words" </dev/null &
}
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
there "${machines[0]}" ps 0 "$@"
for ((i = 1; i < ${#machines[@]}; i++)); do there "${machines[i]}" worker $((i - 1)) "$@"; done
python -m towers.train --job_name=controller "${hosts[@]}" "$@"
wait
