"""redis-py against a Quorate cluster: client.py HOST:PORT HOST:PORT HOST:PORT

First what every program does, in both versions of the protocol; then a leader is killed while it writes. The test
crates/cli/tests/clients.rs runs it and does the killing: it answers `leader?` with an address, and `ready-for-kill`
with `killed`. Where QUORATE_TLS_CA is set, it comes over TLS, with the certificate in QUORATE_TLS_CERT and
QUORATE_TLS_KEY, as QUORATE_USER with QUORATE_PASSWORD.
"""

import os
import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ENDPOINTS = sys.argv[1:]
ACCESS = {}
if "QUORATE_TLS_CA" in os.environ:
    ACCESS = {
        "ssl": True,
        "ssl_ca_certs": os.environ["QUORATE_TLS_CA"],
        "ssl_certfile": os.environ["QUORATE_TLS_CERT"],
        "ssl_keyfile": os.environ["QUORATE_TLS_KEY"],
        "username": os.environ["QUORATE_USER"],
        "password": os.environ["QUORATE_PASSWORD"],
    }


def connect(endpoint, **options):
    host, port = endpoint.rsplit(":", 1)
    return redis.Redis(host=host, port=int(port), **ACCESS, **options)


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no error: expected {text}")


def everyday(protocol, endpoint):
    r = connect(endpoint, protocol=protocol, client_name="everyday")
    hello = r.execute_command("HELLO", protocol)
    hello = hello if protocol == 3 else dict(zip(hello[::2], hello[1::2]))
    assert hello[b"server"] == b"redis" and hello[b"proto"] == protocol, hello
    assert r.client_getname() in ("everyday", b"everyday")
    assert r.client_info()["lib-name"].startswith("redis-py"), r.client_info()
    assert r.ping() is True and r.info()["redis_version"]
    assert "get" in r.command() and r.command_count() > 50
    r.flushdb()

    # Values are bytes; text is UTF-8.
    binary = bytes(range(256))
    assert r.set("binary", binary) is True and r.get("binary") == binary
    assert r.set("schlüssel", "grüße 🌍") and r.get("schlüssel").decode() == "grüße 🌍"
    assert r.get("missing") is None and r.mget(["binary", "missing"]) == [binary, None]
    assert r.set("binary", "other", nx=True) is None
    assert r.delete("binary", "schlüssel", "missing") == 2
    large = bytes(i * 7 % 251 for i in range(1 << 20))
    assert r.set("large", large) and r.get("large") == large

    assert r.set("long", "x", ex=3600) and 0 < r.pttl("long") <= 3_600_000
    assert r.persist("long") and r.ttl("long") == -1
    r.set("brief", "x", px=100)
    until = time.monotonic() + 10
    while r.get("brief") is not None:
        assert time.monotonic() < until, "it never expired"

    assert r.hset("hash", mapping={"a": 1, "b": "zwei"}) == 2 and r.hget("hash", "none") is None
    assert r.hgetall("hash") == {b"a": b"1", b"b": b"zwei"} and r.hincrby("hash", "a", 41) == 42

    with r.pipeline(transaction=False) as pipe:
        for i in range(300):
            pipe.set(f"scan:{i}", i).get(f"scan:{i}")
        replies = pipe.execute()
    assert replies == [reply for i in range(300) for reply in (True, str(i).encode())]
    assert set(r.scan_iter(match="scan:*", count=50)) == {f"scan:{i}".encode() for i in range(300)}
    assert {field for field, _ in r.hscan_iter("hash")} == {b"a", b"b"}

    # A transaction that holds, and one whose watched key another client changes.
    with r.pipeline() as pipe:
        pipe.watch("balance")
        assert pipe.get("balance") is None
        pipe.multi()
        assert pipe.set("balance", 10).incrby("balance", 5).execute() == [True, 15]
        pipe.watch("balance")
        connect(endpoint).set("balance", 99)
        pipe.multi()
        raises(redis.WatchError, "Watched variable changed", pipe.incr("balance").execute)
    assert r.get("balance") == b"99"

    raises(redis.ResponseError, "WRONGTYPE Operation against a key", lambda: r.hget("balance", "field"))
    raises(redis.ResponseError, "hash value is not an integer", lambda: r.hincrby("hash", "b"))
    # There are no lists to wait for: it says so at once.
    raises(redis.ResponseError, "unknown command 'BLPOP'", lambda: r.blpop(["missing"], timeout=30))
    r.close()
    print(f"everyday, RESP{protocol}: ok", flush=True)


class Anywhere:
    """One client for each node: any of them serves everything, so after an error the next one is asked."""

    def __init__(self, endpoints, **options):
        self.clients = [connect(endpoint, **options) for endpoint in endpoints]

    def call(self, command, *words):
        """The reply, or None after an error: then it is unknown whether the command was carried out."""
        try:
            return getattr(self.clients[0], command)(*words)
        except redis.RedisError as error:
            print(f"{command}: {type(error).__name__}: {error}", flush=True)
            self.clients.append(self.clients.pop(0))
            return None


class Writer(threading.Thread):
    """Goes on with one command until told to stop; remembers what was acknowledged."""

    def __init__(self, name, client, command):
        super().__init__(name=name, daemon=True)
        self.client, self.command = client, command
        self.acknowledged, self.errors, self.pause, self.stop = [], 0, 0.0, False

    def run(self):
        attempt = 0
        while not self.stop:
            attempt, began = attempt + 1, time.monotonic()
            words = [f"{self.name}:{attempt}", attempt] if self.command == "set" else [self.name]
            if self.client.call(self.command, *words) is None:
                self.errors += 1
            else:
                self.acknowledged.append(words[0])
            self.pause = max(self.pause, time.monotonic() - began)


def ask(line):
    print(line, flush=True)
    return input()


def progress(writers, count):
    targets = [len(writer.acknowledged) + count for writer in writers]
    until = time.monotonic() + 30
    for writer, target in zip(writers, targets):
        while len(writer.acknowledged) < target:
            assert writer.is_alive() and time.monotonic() < until, f"{writer.name} does not go on"
            time.sleep(0.01)


def failover():
    leader = ask("leader?")
    others = [endpoint for endpoint in ENDPOINTS if endpoint != leader]
    # A retry of INCR may count twice, unseen: whoever cannot have that turns retries off.
    once = {"retry": Retry(NoBackoff(), 0)}
    writers = [
        Writer("at-follower", Anywhere(others), "set"),
        # As it is by default: it asks its own node three times more, seconds apart, before it gives up.
        Writer("at-leader", Anywhere([leader, *others]), "set"),
        Writer("counter", Anywhere([leader, *others], **once), "incr"),
    ]
    for writer in writers:
        writer.start()
    progress(writers, 100)
    assert ask("ready-for-kill") == "killed"
    progress(writers, 100)
    for writer in writers:
        writer.stop = True
    for writer in writers:
        writer.join()
        print(
            f"{writer.name}: {len(writer.acknowledged)} acknowledged, {writer.errors} errors, "
            f"longest {writer.pause:.2f} s",
            flush=True,
        )
    assert writers[0].errors == 0, "the node waits for the next leader, its clients see no error"
    for endpoint in others:
        r = connect(endpoint)
        for writer in writers[:2]:
            values = r.mget(writer.acknowledged)
            for key, value in zip(writer.acknowledged, values):
                assert value == key.split(":")[1].encode(), f"{key} was acknowledged, and is {value} at {endpoint}"
        counter = writers[2]
        least, most = len(counter.acknowledged), len(counter.acknowledged) + counter.errors
        assert least <= int(r.get("counter")) <= most, f"{r.get('counter')} is not in {least}..={most}"


for version, address in zip((2, 3), ENDPOINTS):
    everyday(version, address)
failover()
print("verified", flush=True)
