#!/usr/bin/env bash
# deploy/ssh.sh PS WORKER... -- FLAG...
#
# Starts a ps on the first machine and a worker on each of the others, over ssh, and the
# controller here.  It shows what the controller prints.  The terminal may close; the run
# goes on.  Ctrl-C, or in the same folder
#
#   deploy/ssh.sh stop
#
# has the controller save and end all tasks.  Each task's log is in the folder
# towers-logs, on its machine.
#
# This folder must be there on each machine, and ssh must need no password.  The
# environment may have PYTHON, the interpreter there and here if it is not `python`; and
# CONTROLLER, the name or address by which the others reach this machine.
#
# The machines' ports 2222 to 2224 must be reachable from nowhere else (see
# deploy/README.md): name them by the addresses of a private network, WireGuard say.
set -euo pipefail
logs=towers-logs

stop() {
  local pid
  pid=$(cat "$logs/pid" 2>/dev/null) && kill -TERM "$pid" 2>/dev/null || {
    echo "error: no run was started from this folder, or it has ended" >&2
    return 2
  }
  tail --pid="$pid" -f /dev/null # waits for its end
}

killed() { # status: whether a signal ended a task that may be started again
  case $1 in 129 | 130 | 141 | 143 | 255) return 1 ;; esac
  [ "$1" -gt 128 ]
}

remote() { # machine, command
  ssh -n -o BatchMode=yes -o ServerAliveInterval=15 "$1" "cd $(printf %q "$PWD") || exit 126; $2"
}

there() { # job, index, machine, the controller's process
  local words status=0 begun=$SECONDS
  words=$(printf '%q ' "${PYTHON:-python}" -m towers.train \
    --job_name="$1" --task_index="$2" "${flags[@]}")
  local pid=$logs/$1$2.pid # is there while the task runs
  words="mkdir -p $logs; $words </dev/null >>$logs/$1$2.log 2>&1 & echo \$! >$pid"
  words+="; wait \$!; status=\$?; rm $pid; exit \$status"
  remote "$3" "$words" || status=$?
  local task="$1 $2 on $3" log="its log is $3:$PWD/$logs/$1$2.log"
  if [ "$status" = 255 ] && [ $((SECONDS - begun)) -gt 15 ]; then
    echo "the connection to $3 ended; $1 $2 may run on there; $log"
  elif killed "$status"; then
    echo "$task ended with status $status; $log; to start it again:"
    words="cd $(printf %q "$PWD") || exit; $words"
    echo "  ssh $3 '${words//\'/\'\\\'\'}' &"
  elif [ "$status" -gt 1 ] && [ "$status" -lt 129 ] || [ "$status" = 255 ]; then
    echo "error: $task cannot run (status $status); $log"
    echo "$status" >"$logs/refused"
    kill -TERM "$4" 2>/dev/null || true # or it would wait for the task
  fi
}

await() { # for some time, until no task is connected
  local i
  for ((i = 0; i < 20; i++)); do [ "$(jobs -rp)" ] || break; sleep 1; done
}

run() { # machines, --, flags
  local machines=() watchers=() workers process= status=0 next i told=
  while [ "$1" != -- ]; do machines+=("$1"); shift; done
  shift
  workers=$(printf '%s:2224,' "${machines[@]:1}")
  flags=(
    --controller_host="${CONTROLLER:-$(hostname)}:2222"
    --ps_hosts="${machines[0]}:2223"
    --worker_hosts="${workers%,}"
    "$@"
  )
  trap 'told=1; kill -TERM "$process" 2>/dev/null || true' TERM
  "${PYTHON:-python}" -m towers.train --job_name=controller "${flags[@]}" &
  process=$!
  [ ! "$told" ] || kill -TERM "$process" # it came before this process was known
  there ps 0 "${machines[0]}" "$process" &
  watchers+=($!)
  for ((i = 1; i < ${#machines[@]}; i++)); do
    there worker $((i - 1)) "${machines[i]}" "$process" &
    watchers+=($!)
  done
  wait "$process" || status=$?
  while [ "$told" ]; do # the trap ended that wait, not the controller
    told= next=0
    wait "$process" || next=$?
    [ "$next" = 127 ] || status=$next # 127: it had ended before
  done
  # It has told the others to end, unless it was ended early.
  [ -e "$logs/refused" ] || await
  for i in "${!machines[@]}"; do
    next=ps0
    [ "$i" = 0 ] || next=worker$((i - 1))
    kill -0 "${watchers[i]}" 2>/dev/null || continue
    # It may be about to start.
    remote "${machines[i]}" "for i in 1 2 3 4 5; do
      kill \$(cat $logs/$next.pid) 2>/dev/null && break; sleep 1; done" || true
  done
  await
  [ ! -e "$logs/refused" ] || status=$(cat "$logs/refused")
  echo "$status" >"$logs/status"
}

case ${1:-} in
  stop) stop; exit ;;
  run) run "${@:2}"; exit ;;
esac
refuse() { echo "error: $1; usage: $0 PS WORKER... -- FLAG... | $0 stop" >&2; exit 2; }

words=" $* "
machines=${words%% -- *}
[ "$machines" != "$words" ] || refuse "there is no -- between machines and flags"
[ "$(wc -w <<<"$machines")" -ge 2 ] || refuse "no machine for a worker: the first is for the ps"
for flag in ${words#* -- }; do
  case ${flag/#--/-} in
    -ps_hosts* | -worker_hosts* | -controller_host* | -job_name* | -task_index* | -local_cluster*)
      refuse "$flag: this script gives each machine its task; leave it out" ;;
  esac
done
for machine in $machines; do
  case $machine in -*) refuse "$machine is no machine; flags come after --" ;; esac
done
mkdir -p "$logs"
if kill -0 "$(cat "$logs/pid" 2>/dev/null)" 2>/dev/null; then
  echo "error: a run that was started from this folder goes on; $0 stop ends it" >&2
  exit 2
fi
rm -f "$logs/status" "$logs/refused"
: >"$logs/controller.log"
setsid nohup bash "$0" run "$@" </dev/null >"$logs/controller.log" 2>&1 &
process=$!
echo "$process" >"$logs/pid"
trap stop INT # in which this shell waits for the end
tail -n +1 --pid="$process" -f "$logs/controller.log" &
wait || wait
exit "$(cat "$logs/status")"
