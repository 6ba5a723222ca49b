#!/usr/bin/env python3
"""Reserves a gang over REST and follows its events until it has ended.

Only the standard library is needed. The program survives restarts of gateways: it repeats
calls with the same request ID, and resumes the stream of events from the cursor of the last
event. With --state-file it also survives its own restart.
"""

import argparse
import http.client
import json
import os
import random
import ssl
import sys
import time
import urllib.parse
import uuid

# Berth forgets a request ID ten minutes after the end of the reservation. A call must not be
# repeated for longer than half of that time.
REPEAT_FOR = 300
# A gateway sends a comment to an idle stream every 15 seconds.
TIMEOUT = 60
ENDED = ("COMPLETED", "CANCELLED", "EXPIRED", "FAILED")


class Refused(Exception):
    """A gateway has refused a call, which was not applied."""

    def __init__(self, code, body):
        self.code = code
        try:
            status = json.loads(body)
        except ValueError:
            status = {"message": body.decode(errors="replace")}
        super().__init__(f"HTTP {code}: {status.get('message')}")
        self.reason, self.cursor = None, None
        for detail in status.get("details", []):
            self.reason = detail.get("reason", self.reason)
            self.cursor = detail.get("metadata", {}).get("cursor", self.cursor)

    def may_repeat(self):
        return self.code in (429, 503) and self.reason != "REGISTRY_NOT_READY"


class Client:
    """Calls one of several gateways, and the next one after each failure."""

    def __init__(self, gateways, ca=None, cert=None, key=None, token_file=None):
        # Like the berth command, use TLS if an option of TLS is set and the gateway has no scheme.
        scheme = "https://" if ca or cert or token_file else "http://"
        self.gateways = [urllib.parse.urlsplit(g if "://" in g else scheme + g) for g in gateways]
        self.token_file = token_file
        self.tls = None
        if all(url.scheme == "https" for url in self.gateways):
            self.tls = ssl.create_default_context(cafile=ca)
            if cert:
                self.tls.load_cert_chain(cert, key)
        elif token_file or ca or cert or any(url.scheme != "http" for url in self.gateways):
            # Without TLS anyone on the network could read the token.
            sys.exit("reserve.py: --gateway: must be https://HOST:PORT with TLS or a token, otherwise http://HOST:PORT")

    def open(self, method, path, body=None, headers=None):
        """Makes one attempt, and returns the connection and the answer."""
        url = self.gateways[0]
        if self.tls:
            connection = http.client.HTTPSConnection(url.netloc, timeout=TIMEOUT, context=self.tls)
        else:
            connection = http.client.HTTPConnection(url.netloc, timeout=TIMEOUT)
        headers = dict(headers or {})
        if self.token_file:
            with open(self.token_file, encoding="ascii") as file:
                headers["Authorization"] = "Bearer " + file.read().strip()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise Refused(answer.status, answer.read())
            return connection, answer
        except BaseException:
            connection.close()
            raise

    def failed(self, attempt, error):
        """Waits before the next attempt, at the next gateway."""
        print("retrying:", error, file=sys.stderr, flush=True)
        self.gateways.append(self.gateways.pop(0))
        time.sleep(min(0.05 * 2 ** min(attempt, 6), 2) * random.uniform(0.5, 1))

    def call(self, method, path, body=None):
        """Makes a call, and repeats it while its outcome is unknown."""
        text = None if body is None else json.dumps(body)
        deadline = time.monotonic() + REPEAT_FOR
        attempt = 0
        while True:
            try:
                connection, answer = self.open(method, path, text)
                try:
                    return json.loads(answer.read())
                finally:
                    connection.close()
            except (OSError, http.client.HTTPException, Refused) as error:
                if isinstance(error, Refused) and not error.may_repeat() or time.monotonic() > deadline:
                    raise
                self.failed(attempt, error)
            attempt += 1

    def events(self, job, cursor):
        """Yields the events of a job after a cursor: each event once, and none is missed."""
        attempt = 0
        while True:
            error = "the stream has ended"
            try:
                headers = {"Accept": "text/event-stream"}
                if cursor:
                    headers["Last-Event-ID"] = cursor
                connection, answer = self.open("GET", f"/v1/jobs/{quote(job)}/events", headers=headers)
                try:
                    for name, data in server_sent(answer):
                        if name == "error":
                            raise Refused(503, data.encode())
                        event = json.loads(data)
                        yield event
                        cursor, attempt = event["cursor"], 0
                finally:
                    connection.close()
            except (OSError, http.client.HTTPException) as failure:
                error = failure
            except Refused as refused:
                if refused.reason == "EVENTS_COMPACTED":
                    # Events were deleted before they were read. The caller reads the state.
                    cursor = refused.cursor
                    yield None
                elif not refused.may_repeat():
                    raise
                error = refused
            self.failed(attempt, error)
            attempt += 1


def quote(name):
    return urllib.parse.quote(name, safe="")


def workers(count):
    return f"{count} worker" + "s" * (count != 1)


def server_sent(answer):
    """Yields the name and the data of each complete server-sent event."""
    name, data = None, None
    while line := answer.readline():
        key, _, value = line.decode().rstrip("\n").partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            data = value
        elif line == b"\n":
            if data is not None:
                yield name, data
            name, data = None, None


def load(file):
    """Returns the state that an earlier run stored, if there is one."""
    if not file or not os.path.exists(file):
        return {}
    with open(file, encoding="ascii") as old:
        return json.load(old)


def store(file, state):
    """Replaces the stored state, never by a part of it."""
    if not file:
        return
    with open(file + ".new", "w", encoding="ascii") as new:
        json.dump(state, new)
    os.replace(file + ".new", file)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gateway", action="append", help="HOST:PORT or URL of a gateway; may be repeated "
                         "(default $BERTH_GATEWAY, or 127.0.0.1:8080)")
    options.add_argument("--job", default="train", help="name of the job (default train)")
    options.add_argument("--stage", default="gpu", help="name of the stage (default gpu)")
    options.add_argument("--workers", type=int, default=4, help="number of workers of the gang (default 4)")
    options.add_argument("--resources", help='resources of each worker, such as \'{"cpu": "500m"}\'')
    options.add_argument("--queue-timeout", help="maximum time that the gang may be pending, such as 10m "
                         "(default no limit)")
    options.add_argument("--state-file", help="file from which a later run resumes; delete it for a new gang")
    options.add_argument("--tls-ca", default=os.environ.get("BERTH_TLS_CA"),
                         help="certificates of the gateways' authorities (default $BERTH_TLS_CA, or those of the host)")
    options.add_argument("--tls-cert", default=os.environ.get("BERTH_TLS_CERT"),
                         help="client certificate for mutual TLS (default $BERTH_TLS_CERT)")
    options.add_argument("--tls-key", default=os.environ.get("BERTH_TLS_KEY"),
                         help="private key of the client certificate (default $BERTH_TLS_KEY)")
    options.add_argument("--token-file", default=os.environ.get("BERTH_TOKEN_FILE"),
                         help="file with a bearer token (default $BERTH_TOKEN_FILE)")
    options.add_argument("command", nargs=argparse.REMAINDER, help="command of each worker, and its arguments")
    o = options.parse_args()
    if o.command[:1] == ["--"]:
        del o.command[0]
    gateways = o.gateway or os.environ.get("BERTH_GATEWAY", "127.0.0.1:8080").split(",")
    client = Client(gateways, o.tls_ca, o.tls_cert, o.tls_key, o.token_file)

    path = f"/v1/jobs/{quote(o.job)}/stages/{quote(o.stage)}/reservation"
    state = load(o.state_file)
    if not state:
        # The events after the cursor of a list include everything that is newer than the list.
        state["cursor"] = client.call("GET", f"/v1/reservations?pageSize=1&job={quote(o.job)}")["cursor"]
    if "uid" not in state:
        store(o.state_file, state)
        body = {"count": o.workers, "requestId": uuid.uuid4().hex}
        if o.resources:
            body["constraints"] = {"resources": json.loads(o.resources)}
        if o.queue_timeout:
            body["queueTimeout"] = o.queue_timeout
        if o.command:
            body["task"] = {"command": o.command[0], "args": o.command[1:]}
        reservation = client.call("PUT", path, body)
        print(f"{o.job}/{o.stage}/main {reservation['change']}", flush=True)
        state["uid"] = reservation["uid"]
        store(o.state_file, state)

    for event in client.events(o.job, state["cursor"]):
        if event:
            print(event["cursor"], event["kind"], workers(event["count"]), flush=True)
            state["cursor"] = event["cursor"]
            store(o.state_file, state)
            if event["kind"].removeprefix("RESERVATION_") not in ENDED:
                continue
        # A version that has ended may have a successor, which the read returns.
        reservation = client.call("GET", path)
        if reservation["state"] in ENDED and (not event or event["uid"] == reservation["uid"]):
            break
    # The state COMPLETED says that all workers have ended; the counts say how.
    counts = reservation["workerCounts"]
    ended = ", ".join(f"{workers(n)} {state}" for state, n in sorted(counts.items()))
    print(f"{o.job}/{o.stage}/main {reservation['state']}: {ended}", flush=True)
    return 0 if set(counts) == {"COMPLETED"} else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, http.client.HTTPException, Refused) as failure:
        sys.exit(f"reserve.py: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
