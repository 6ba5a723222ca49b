#!/bin/bash
# Installs the packages on a host with systemd, starts everything, and removes the packages.
# It prints a line for each check that passed.
set -euo pipefail
cd /
export DEBIAN_FRONTEND=noninteractive

check() { # NAME COMMAND...
	local name=$1; shift
	if ! "$@"; then echo "FAILED: $name: $*"; journalctl -b -u 'berth-*' -u etcd --no-pager | tail -50; exit 1; fi
	echo "checked: $name"
}
equals() { [[ $1 == "$2" ]] || { echo "got $1, want $2"; return 1; }; }
state() { systemctl is-active "$@" | sort -u | tr '\n' ' '; }
services="berth-registry berth-executor-state berth-assigner berth-gateway"
of_main() { grep -E "^$2:" "/proc/$(systemctl show -P MainPID "$1")/status" | awk '{print $2}'; }
until_true() { for _ in $(seq 600); do if "$@"; then return; fi; sleep 0.1; done; return 1; }
worker_runs() { [[ $(pgrep -c -x sleep-as-worker) == 1 ]]; }

dpkg -i /root/berth_*.deb /root/berth-agent_*.deb /root/berth-server_*.deb
check "nothing is enabled" equals "$(systemctl is-enabled $services berth-agent 2>&1 | sort -u)" disabled
check "nothing is started" equals "$(state $services berth-agent)" "inactive "
check "users" id -u berth berth-agent
check "the man page of the command" man -w berth-apply
check "the man page of the agent" man -w 8 berth-agent

# A cluster on one host needs no option.
mkdir /var/lib/etcd
systemd-run --quiet --unit=etcd berth etcd --dir /var/lib/etcd --name a --members a=127.0.0.1:2380 \
	--listen 127.0.0.1:2379 --peer-listen 127.0.0.1:2380
check "the services start" systemctl enable --now $services
check "the services run" equals "$(state $services)" "active "
for service in $services; do
	check "the user of $service" equals "$(of_main $service Uid)" "$(id -u berth)"
	check "$service has no capabilities" equals "$(of_main $service CapEff)$(of_main $service CapBnd)" 00000000000000000000000000000000
	check "$service has a filter of system calls" equals "$(of_main $service Seccomp)" 2
done
check "the agent starts" systemctl enable --now berth-agent
check "the executor is ready" bash -c 'berth get executors | grep -q READY'
check "the user of the agent" equals "$(of_main berth-agent Uid)" "$(id -u berth-agent)"
check "the secret of the agent" equals "$(stat -c '%U %a' /var/lib/berth-agent/secret)" "berth-agent 600"

# An upgrade keeps the options, and workers outlive the agent.
cp /bin/sleep /usr/local/bin/sleep-as-worker
echo BERTH_ALLOW=/usr/local/bin/sleep-as-worker >>/etc/berth/agent.env
for service in registry executor-state assigner gateway; do echo "BERTH_AUDIT_LOG=/var/log/berth/$service.log" >>/etc/berth/$service.env; done
dpkg -i /root/berth_*.deb /root/berth-agent_*.deb /root/berth-server_*.deb
check "an upgrade keeps options" grep -q sleep-as-worker /etc/berth/agent.env
check "an upgrade stops nothing" equals "$(state $services berth-agent)" "active "
check "the services restart" systemctl restart $services
check "the agent restarts" systemctl restart berth-agent
until_true bash -c 'berth get executors | grep -q READY'
cat >/root/job.yaml <<-EOF
	job: sleeping
	stage: only
	count: 1
	task: {command: /usr/local/bin/sleep-as-worker, args: ["3600"]}
EOF
check "a job is accepted" berth apply -f /root/job.yaml
check "the worker starts" until_true worker_runs
check "an audit log" grep -q sleeping /var/log/berth/gateway.log /var/log/berth/registry.log
worker=$(pgrep -x sleep-as-worker)
check "the user of the worker" equals "$(($(stat -c %u /proc/$worker) / 1000))" 200
check "the agent restarts again" systemctl restart berth-agent
check "the worker outlives a restart" equals "$(pgrep -x sleep-as-worker)" "$worker"
kill -KILL "$(systemctl show -P MainPID berth-agent)"
check "systemd restarts the agent" until_true bash -c '[[ $(systemctl show -P NRestarts berth-agent) == 1 && $(systemctl is-active berth-agent) == active ]]'
check "the worker outlives a crash" equals "$(pgrep -x sleep-as-worker)" "$worker"
check "the worker is canceled" berth cancel sleeping
check "the new agent stops the worker" until_true bash -c '! pgrep -x sleep-as-worker'
check "the drop-in is accepted" bash -c 'install -D -m 644 /usr/share/doc/berth-agent/without-worker-uids.conf \
	/etc/systemd/system/berth-agent.service.d/without-worker-uids.conf && sed -i /WORKER_UIDS/d /etc/berth/agent.env &&
	systemctl daemon-reload && systemctl restart berth-agent'
check "the drop-in removes the capabilities" equals "$(of_main berth-agent CapBnd)" 0000000000000000

dpkg -r berth-agent berth-server
check "removal stops the units" equals "$(state $services berth-agent)" "inactive "
check "removal keeps options" test -f /etc/berth/agent.env
check "removal disables the units" bash -c '! find /etc/systemd/system -name "berth-*.service" | grep .'
dpkg -P berth-agent berth-server berth
check "purge removes the options" bash -c '! find /etc/berth -type f | grep .'
check "purge keeps the secret of the agent" test -f /var/lib/berth-agent/secret
check "no unit failed" equals "$(systemctl list-units --failed --no-legend 'berth-*')" ""
echo "all checks passed"
