// node-redis against a Quorate cluster: client.js HOST:PORT HOST:PORT HOST:PORT
//
// First what every program does, in both versions of the protocol; then a leader is killed while it writes. The
// test crates/cli/tests/clients.rs runs it and does the killing: it answers `leader?` with an address, and
// `ready-for-kill` with `killed`. Where QUORATE_TLS_CA is set, it comes over TLS, with the certificate in
// QUORATE_TLS_CERT and QUORATE_TLS_KEY, as QUORATE_USER with QUORATE_PASSWORD.
"use strict";
const assert = require("node:assert/strict");
const { readFileSync } = require("node:fs");
const readline = require("node:readline");
const { setTimeout: pause } = require("node:timers/promises");
const { createClient, ErrorReply, RESP_TYPES, WatchError } = require("redis");

const endpoints = process.argv.slice(2);
const env = process.env;
const secured = env.QUORATE_TLS_CA !== undefined;
const files = secured && {
  ca: readFileSync(env.QUORATE_TLS_CA),
  cert: readFileSync(env.QUORATE_TLS_CERT),
  key: readFileSync(env.QUORATE_TLS_KEY),
};
const login = secured && { username: env.QUORATE_USER, password: env.QUORATE_PASSWORD };
const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(line) {
  console.log(line);
  return (await input.next()).value;
}

/** A client of one node. An error of the connection also fails the command under way: it is handled there. */
async function connect(endpoint, { socket, ...options } = {}) {
  const url = `${secured ? "rediss" : "redis"}://${endpoint}`;
  const client = createClient({ url, socket: { ...files, ...socket }, ...login, ...options });
  client.on("error", () => {});
  return client.connect();
}

async function everyday(RESP, endpoint) {
  const r = await connect(endpoint, { RESP, name: "everyday" });
  assert.equal((await r.hello(RESP)).proto, RESP);
  assert.equal(await r.clientGetName(), "everyday");
  assert.match((await r.clientInfo()).libName ?? (await r.sendCommand(["CLIENT", "INFO"])), /node-redis/);
  assert.equal(await r.ping(), "PONG");
  assert.match(await r.info(), /redis_version/);
  assert.equal((await r.commandInfo(["get"]))[0].firstKeyIndex, 1);
  await r.flushDb();

  const bytes = r.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const binary = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  assert.equal(await r.set("binary", binary), "OK");
  assert.deepEqual(await bytes.get("binary"), binary);
  assert.equal(await r.set("schlüssel", "grüße 🌍"), "OK");
  assert.equal(await r.get("schlüssel"), "grüße 🌍");
  assert.equal(await r.get("missing"), null);
  assert.equal(await r.set("binary", "other", { condition: "NX" }), null);
  assert.equal(await r.del(["binary", "schlüssel", "missing"]), 2);
  const large = "0123456789abcdef".repeat(1 << 16);
  assert.equal(await r.set("large", large), "OK");
  assert.ok((await r.get("large")) === large, "1 MiB");

  await r.set("long", "x", { expiration: { type: "PX", value: 3_600_000 } });
  const left = await r.pTTL("long");
  assert.ok(0 < left && left <= 3_600_000, left);
  await r.set("brief", "x", { expiration: { type: "PX", value: 100 } });
  for (const until = Date.now() + 10_000; (await r.get("brief")) !== null; ) {
    assert.ok(Date.now() < until, "it never expired");
  }

  assert.equal(await r.hSet("hash", { a: 1, b: "zwei" }), 2);
  assert.deepEqual({ ...(await r.hGetAll("hash")) }, { a: "1", b: "zwei" });
  assert.equal(await r.hIncrBy("hash", "a", 41), 42);
  assert.equal(await r.hGet("hash", "none"), null);

  // Commands of one tick go out together: that is a pipeline.
  const numbers = Array.from({ length: 300 }, (_, i) => `${i}`);
  const replies = await Promise.all(numbers.flatMap((i) => [r.set(`scan:${i}`, i), r.get(`scan:${i}`)]));
  assert.deepEqual(replies, numbers.flatMap((i) => ["OK", i]));
  const found = new Set();
  for await (const keys of r.scanIterator({ MATCH: "scan:*", COUNT: 50 })) keys.forEach((key) => found.add(key));
  assert.deepEqual(found, new Set(numbers.map((i) => `scan:${i}`)));

  // A transaction that holds, and one whose watched key another client changes.
  await r.watch("balance");
  assert.deepEqual(await r.multi().set("balance", 10).incrBy("balance", 5).exec(), ["OK", 15]);
  await r.watch("balance");
  const other = await connect(endpoint);
  await other.set("balance", 99);
  await other.close();
  await assert.rejects(r.multi().incr("balance").exec(), WatchError);
  assert.equal(await r.get("balance"), "99");

  const refusal = (text) => (error) => error instanceof ErrorReply && error.message.includes(text);
  await assert.rejects(r.hGet("balance", "field"), refusal("WRONGTYPE Operation against a key"));
  await assert.rejects(r.incr("large"), refusal("ERR value is not an integer or out of range"));
  // There are no lists to wait for: it says so at once.
  await assert.rejects(r.blPop("missing", 30), refusal("unknown command 'BLPOP'"));
  await r.close();
  console.log(`everyday, RESP${RESP}: ok`);
}

/** A client of the whole cluster: any node serves everything, so after an error the next one is asked. */
class Anywhere {
  constructor(endpoints) {
    this.endpoints = endpoints;
  }

  /** Rejects after an error: then it is unknown whether the command was carried out. */
  async call(command, ...words) {
    try {
      // Left alone, a client waits until its own node is back. It never sends a command twice.
      this.client ??= await connect(this.endpoints[0], { socket: { reconnectStrategy: false } });
      return await this.client[command](...words);
    } catch (error) {
      console.log(`${command}: ${error.constructor.name}: ${error.message}`);
      if (this.client?.isOpen) this.client.destroy();
      this.client = undefined;
      this.endpoints.push(this.endpoints.shift());
      throw error;
    }
  }
}

/** Goes on with one command until told to stop, and counts what was acknowledged. */
class Writer {
  keys = [];
  errors = 0;
  longest = 0;
  stop = false;

  constructor(name, endpoints) {
    this.name = name;
    this.client = new Anywhere([...endpoints]);
    this.ended = this.run();
  }

  async run() {
    for (let attempt = 1; !this.stop; attempt++) {
      const began = Date.now();
      const key = `${this.name}:${attempt}`;
      try {
        const words = this.name === "counter" ? ["incr", this.name] : ["set", key, key];
        await this.client.call(...words);
        this.keys.push(key);
      } catch {
        this.errors++;
      }
      this.longest = Math.max(this.longest, Date.now() - began);
    }
  }
}

async function progress(writers, count) {
  const targets = writers.map((writer) => writer.keys.length + count);
  const until = Date.now() + 30_000;
  for (const [i, writer] of writers.entries()) {
    while (writer.keys.length < targets[i]) {
      assert.ok(Date.now() < until, `${writer.name} does not go on`);
      await pause(10);
    }
  }
}

async function failover() {
  const leader = await ask("leader?");
  const others = endpoints.filter((endpoint) => endpoint !== leader);
  const writers = [
    new Writer("at-follower", others),
    new Writer("at-leader", [leader, ...others]),
    new Writer("counter", [leader, ...others]),
  ];
  await progress(writers, 100);
  assert.equal(await ask("ready-for-kill"), "killed");
  await progress(writers, 100);
  for (const writer of writers) writer.stop = true;
  for (const writer of writers) {
    await writer.ended;
    const { name, keys, errors, longest } = writer;
    console.log(`${name}: ${keys.length} acknowledged, ${errors} errors, longest ${longest / 1000} s`);
  }
  const counter = writers[2];
  assert.equal(writers[0].errors, 0, "the node waits for the next leader, its clients see no error");
  for (const endpoint of others) {
    const r = await connect(endpoint);
    for (const { keys } of writers.slice(0, 2)) {
      assert.deepEqual(await r.mGet(keys), keys, "each of them was acknowledged");
    }
    const count = Number(await r.get("counter"));
    const [least, most] = [counter.keys.length, counter.keys.length + counter.errors];
    assert.ok(least <= count && count <= most, `${count} is not in ${least}..=${most}`);
    await r.close();
  }
}

async function main() {
  await everyday(2, endpoints[0]);
  await everyday(3, endpoints[1]);
  await failover();
  console.log("verified");
}

main().then(
  () => process.exit(0),
  (error) => {
    console.log(error);
    process.exit(1);
  },
);
