#!/usr/bin/env bash
# TLS between the machines of a cluster: stunnel carries what the tasks say to each
# other, and a firewall closes their own ports, which are open to every interface.
#
#   deploy/tunnel.sh keys FOLDER MACHINE...
#
# makes, once and anywhere, a certificate authority of this cluster alone in FOLDER, and
# for each machine, named by its address, a folder in it.  Copy each to its machine;
# FOLDER/authority.key never leaves.
#
#   deploy/tunnel.sh run FOLDER/MACHINE MACHINE PORT=MACHINE...
#
# runs, as root and on every machine, with a PORT=MACHINE for each task: the port that it
# listens on, no two alike, and where it runs.  TLS is on PORT + 10000.  Every task is
# started with the same list of hosts, all of them 127.0.0.1:PORT.
#
# Needs openssl, stunnel (Debian's stunnel4) and nft (nftables).
set -eu

is_address() { case $1 in *:*) ;; *[!0-9.]*) return 1 ;; esac }

fail() { echo "error: $*" >&2; exit 2; }

keys() { # folder, machines
  local folder=$1 machine name
  shift
  umask 077
  mkdir -p "$folder"
  [ ! -e "$folder/authority.key" ] || fail "there is an authority in $folder already"
  local new=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -batch)
  openssl req -x509 "${new[@]}" -days 365 -subj "/CN=towers" \
    -keyout "$folder/authority.key" -out "$folder/authority.pem" 2>/dev/null
  for machine; do
    name=DNS:$machine
    if is_address "$machine"; then name=IP:$machine; fi
    mkdir -p "$folder/$machine"
    cp "$folder/authority.pem" "$folder/$machine"
    openssl req "${new[@]}" -subj "/CN=$machine" \
      -keyout "$folder/$machine/own.key" -out "$folder/$machine/request" 2>/dev/null
    openssl x509 -req -in "$folder/$machine/request" -days 365 \
      -CA "$folder/authority.pem" -CAkey "$folder/authority.key" -CAcreateserial \
      -extfile <(echo "subjectAltName=$name") -out "$folder/$machine/own.pem" 2>/dev/null
    rm "$folder/$machine/request"
  done
}

configuration() { # folder, me, tasks
  local folder=$1 me=$2 task port machine check
  shift 2
  cat <<END
foreground = yes
pid =
debug = warning
sslVersionMin = TLSv1.3
key = $folder/own.key
cert = $folder/own.pem
CAfile = $folder/authority.pem
; Both ends show a certificate of this authority, or there is no connection.
verifyChain = yes
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
END
  for task; do
    port=${task%%=*} machine=${task#*=}
    echo "[$port]"
    if [ "$machine" = "$me" ]; then
      printf '%s\n' "accept = $me:$((port + 10000))" "connect = 127.0.0.1:$port"
    else
      check=checkHost
      if is_address "$machine"; then check=checkIP; fi
      printf '%s\n' "client = yes" "accept = 127.0.0.1:$port" \
        "connect = $machine:$((port + 10000))" "$check = $machine"
    fi
  done
}

firewall() { # ports
  local ports
  ports=$(IFS=,; echo "$*")
  # It replaces the table in one step, and stays when this program ends: tasks may
  # outlive it.  `nft delete table inet towers` takes it away.
  nft -f - <<END
table inet towers
delete table inet towers
table inet towers {
  chain input {
    type filter hook input priority filter;
    iifname != "lo" tcp dport { $ports } drop
  }
}
END
}

run() { # folder, me, tasks
  local folder me=$2 task own=() seen=' '
  folder=$(cd "$1" && pwd)
  for task in "${@:3}"; do
    [[ $task =~ ^([0-9]{1,5})=.+$ ]] || fail "$task is no PORT=MACHINE"
    [ "${BASH_REMATCH[1]}" -lt 55536 ] || fail "$task: the port must be below 55536"
    [[ $seen != *" ${BASH_REMATCH[1]} "* ]] || fail "$task: the port is another task's"
    seen+="${BASH_REMATCH[1]} "
    [ "${task#*=}" != "$me" ] || own+=("${task%%=*}")
  done
  [ "${#own[@]}" -gt 0 ] || fail "no task runs on $me"
  firewall "${own[@]}" || fail "the firewall could not be set; the ports would be open"
  exec stunnel -fd 3 3< <(configuration "$folder" "$me" "${@:3}")
}

case ${1:-} in
  keys) [ $# -ge 3 ] || fail "usage: $0 keys FOLDER MACHINE..."; keys "${@:2}" ;;
  run) [ $# -ge 4 ] || fail "usage: $0 run FOLDER MACHINE PORT=MACHINE..."; run "${@:2}" ;;
  *) fail "usage: $0 keys|run ..., see the top of the file" ;;
esac
