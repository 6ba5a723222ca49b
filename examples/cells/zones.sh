#!/bin/sh
# Start two zones, each a Berth cluster of its own, as cells of a root cluster.
#
#   zones.sh ROOT DIR
#
# ROOT is the --agents-listen of the root. DIR gets the logs, and for each zone the address of its
# gateway and the process IDs of the cluster and of its agent.
set -eu
root=$1 dir=$2
mkdir -p "$dir"
for zone in zone-a:10 zone-b:5; do
  id=${zone%:*} slots=${zone#*:}
  berth dev --executors 1 --slots "$slots" --listen 127.0.0.1:0 > "$dir/$id.log" 2>&1 &
  echo $! > "$dir/$id.pid"
  until grep -q 'http://' "$dir/$id.log"; do
    kill -0 "$(cat "$dir/$id.pid")" # fails if the zone has ended
    sleep 0.1
  done
  sed -n 's|.*http://\([0-9.:]*\).*|\1|p' "$dir/$id.log" | head -1 > "$dir/$id.address"
  berth cell --id "$id" --parent "$root" --gateway "$(cat "$dir/$id.address")" --dir "$dir/$id" > "$dir/$id-cell.log" 2>&1 &
  echo $! > "$dir/$id-cell.pid"
done
