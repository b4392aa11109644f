// go-redis against a Quorate cluster: client HOST:PORT HOST:PORT HOST:PORT
//
// First what every program does, in both versions of the protocol; then a leader is killed while it writes. The
// test crates/cli/tests/clients.rs runs it and does the killing: it answers `leader?` with an address, and
// `ready-for-kill` with `killed`. Where QUORATE_TLS_CA is set, it comes over TLS, with the certificate in
// QUORATE_TLS_CERT and QUORATE_TLS_KEY, as QUORATE_USER with QUORATE_PASSWORD.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	ctx   = context.Background()
	input = bufio.NewScanner(os.Stdin)
	// nil without TLS.
	secured *tls.Config
)

func main() {
	endpoints := os.Args[1:]
	if authority, found := os.LookupEnv("QUORATE_TLS_CA"); found {
		text, err := os.ReadFile(authority)
		must(err)
		roots := x509.NewCertPool()
		check(roots.AppendCertsFromPEM(text), authority)
		own, err := tls.LoadX509KeyPair(os.Getenv("QUORATE_TLS_CERT"), os.Getenv("QUORATE_TLS_KEY"))
		must(err)
		secured = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, ServerName: "localhost"}
	}
	everyday(2, endpoints[0])
	everyday(3, endpoints[1])
	failover(endpoints)
	fmt.Println("verified")
}

func check(fine bool, found ...interface{}) {
	if !fine {
		panic(fmt.Sprint(found...))
	}
}

func must(err error) {
	check(err == nil, err)
}

func refused(err error, text string) {
	var refusal redis.Error
	check(errors.As(err, &refusal) && strings.Contains(err.Error(), text), "expected ", text, ", got: ", err)
}

// at is how to reach a node.
func at(endpoint string) *redis.Options {
	return &redis.Options{
		Addr:      endpoint,
		TLSConfig: secured,
		Username:  os.Getenv("QUORATE_USER"),
		Password:  os.Getenv("QUORATE_PASSWORD"),
	}
}

func everyday(protocol int, endpoint string) {
	options := at(endpoint)
	options.Protocol, options.ClientName = protocol, "everyday"
	r := redis.NewClient(options)
	defer r.Close()
	hello, err := r.Do(ctx, "HELLO", protocol).Result()
	must(err)
	check(strings.Contains(fmt.Sprint(hello), "redis"), hello)
	check(r.ClientGetName(ctx).Val() == "everyday", "its name")
	info, err := r.ClientInfo(ctx).Result()
	must(err)
	check(strings.HasPrefix(info.LibName, "go-redis"), info)
	commands, err := r.Command(ctx).Result()
	must(err)
	check(commands["get"].ReadOnly && commands["get"].FirstKeyPos == 1, commands["get"])
	check(strings.Contains(r.Info(ctx).Val(), "redis_version"), "INFO")
	must(r.FlushDB(ctx).Err())

	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	must(r.Set(ctx, "binary", binary, 0).Err())
	value, err := r.Get(ctx, "binary").Bytes()
	check(err == nil && bytes.Equal(value, binary), value, err)
	must(r.Set(ctx, "schlüssel", "grüße 🌍", 0).Err())
	check(r.Get(ctx, "schlüssel").Val() == "grüße 🌍", "unicode")
	check(r.Get(ctx, "missing").Err() == redis.Nil, "a missing key is redis.Nil")
	check(!r.SetNX(ctx, "binary", "other", 0).Val(), "SetNX")
	check(r.Del(ctx, "binary", "schlüssel", "missing").Val() == 2, "DEL")
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	must(r.Set(ctx, "large", large, 0).Err())
	value, err = r.Get(ctx, "large").Bytes()
	check(err == nil && bytes.Equal(value, large), "1 MiB: ", err)

	must(r.Set(ctx, "long", "x", time.Hour).Err())
	left := r.PTTL(ctx, "long").Val()
	check(left > 0 && left <= time.Hour, left)
	must(r.Set(ctx, "brief", "x", 100*time.Millisecond).Err())
	for until := time.Now().Add(10 * time.Second); r.Get(ctx, "brief").Err() != redis.Nil; {
		check(time.Now().Before(until), "it never expired")
	}

	must(r.HSet(ctx, "hash", "a", 1, "b", "zwei").Err())
	check(fmt.Sprint(r.HGetAll(ctx, "hash").Val()) == "map[a:1 b:zwei]", r.HGetAll(ctx, "hash"))
	check(r.HIncrBy(ctx, "hash", "a", 41).Val() == 42, "HINCRBY")
	check(r.HGet(ctx, "hash", "none").Err() == redis.Nil, "a missing field is redis.Nil")

	replies, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := 0; i < 300; i++ {
			pipe.Set(ctx, fmt.Sprint("scan:", i), i, 0)
			pipe.Get(ctx, fmt.Sprint("scan:", i))
		}
		return nil
	})
	must(err)
	for i := 0; i < 300; i++ {
		check(replies[2*i].(*redis.StatusCmd).Val() == "OK", replies[2*i])
		check(replies[2*i+1].(*redis.StringCmd).Val() == fmt.Sprint(i), replies[2*i+1])
	}
	found := map[string]bool{}
	scan := r.Scan(ctx, 0, "scan:*", 50).Iterator()
	for scan.Next(ctx) {
		found[scan.Val()] = true
	}
	check(scan.Err() == nil && len(found) == 300, scan.Err(), len(found))

	// A transaction that holds, and one whose watched key another client changes.
	deposit := func(disturb bool) error {
		return r.Watch(ctx, func(tx *redis.Tx) error {
			if disturb {
				must(r.Set(ctx, "balance", 99, 0).Err())
			}
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				return pipe.IncrBy(ctx, "balance", 5).Err()
			})
			return err
		}, "balance")
	}
	must(deposit(false))
	check(r.Get(ctx, "balance").Val() == "5", "the transaction")
	check(deposit(true) == redis.TxFailedErr, "a conflict is redis.TxFailedErr")
	check(r.Get(ctx, "balance").Val() == "99", "the conflict")

	refused(r.HGet(ctx, "balance", "field").Err(), "WRONGTYPE Operation against a key")
	refused(r.IncrBy(ctx, "large", 1).Err(), "ERR value is not an integer or out of range")
	// There are no lists to wait for: it says so at once.
	refused(r.BLPop(ctx, 30*time.Second, "missing").Err(), "ERR unknown command 'blpop'")
	fmt.Printf("everyday, RESP%d: ok\n", protocol)
}

// anywhere is a client of the whole cluster: any node serves everything, so each new connection goes to the first
// that accepts it.
func anywhere(endpoints []string, retries int) *redis.Client {
	options := at(endpoints[0])
	options.MaxRetries = retries
	// A dialer of one's own brings its own TLS.
	plain := &net.Dialer{Timeout: time.Second}
	dial := plain.DialContext
	if secured != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: secured}).DialContext
	}
	options.Dialer = func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		for _, endpoint := range endpoints {
			if conn, err = dial(ctx, network, endpoint); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	return redis.NewClient(options)
}

// A writer goes on with one command until told to stop, and counts what was acknowledged.
type writer struct {
	name                 string
	client               *redis.Client
	stop                 int32
	acknowledged, errors int64
	keys                 []string
	longest              time.Duration
}

func (w *writer) run() {
	for attempt := 1; atomic.LoadInt32(&w.stop) == 0; attempt++ {
		began := time.Now()
		var err error
		key := fmt.Sprint(w.name, ":", attempt)
		if w.name == "counter" {
			err = w.client.Incr(ctx, w.name).Err()
		} else {
			err = w.client.Set(ctx, key, attempt, 0).Err()
		}
		if err == nil {
			w.keys = append(w.keys, key)
			atomic.AddInt64(&w.acknowledged, 1)
		} else {
			fmt.Printf("%s: %v\n", w.name, err)
			w.errors++
		}
		if took := time.Since(began); took > w.longest {
			w.longest = took
		}
	}
}

func progress(writers []*writer, count int64) {
	var targets []int64
	for _, w := range writers {
		targets = append(targets, atomic.LoadInt64(&w.acknowledged)+count)
	}
	until := time.Now().Add(30 * time.Second)
	for i, w := range writers {
		for atomic.LoadInt64(&w.acknowledged) < targets[i] {
			check(time.Now().Before(until), w.name, " does not go on")
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func ask(line string) string {
	fmt.Println(line)
	check(input.Scan(), "no answer to ", line)
	return input.Text()
}

func failover(endpoints []string) {
	leader := ask("leader?")
	var others []string
	for _, endpoint := range endpoints {
		if endpoint != leader {
			others = append(others, endpoint)
		}
	}
	all := append([]string{leader}, others...)
	// A retry of INCR may count twice, unseen: whoever cannot have that turns retries off.
	counter := &writer{name: "counter", client: anywhere(all, -1)}
	writers := []*writer{
		{name: "at-follower", client: redis.NewClient(at(others[0]))},
		// As many retries as there are by default.
		{name: "at-leader", client: anywhere(all, 0)},
		counter,
	}
	var running sync.WaitGroup
	for _, w := range writers {
		running.Add(1)
		go func(w *writer) {
			defer running.Done()
			w.run()
		}(w)
	}
	progress(writers, 100)
	check(ask("ready-for-kill") == "killed", "it was not killed")
	progress(writers, 100)
	for _, w := range writers {
		atomic.StoreInt32(&w.stop, 1)
	}
	running.Wait()
	for _, w := range writers {
		fmt.Printf("%s: %d acknowledged, %d errors, longest %.2f s\n",
			w.name, w.acknowledged, w.errors, w.longest.Seconds())
	}
	check(writers[0].errors == 0, "the node waits for the next leader, its clients see no error")
	for _, endpoint := range others {
		r := redis.NewClient(at(endpoint))
		for _, w := range writers[:2] {
			values, err := r.MGet(ctx, w.keys...).Result()
			must(err)
			for i, key := range w.keys {
				check(w.name+":"+fmt.Sprint(values[i]) == key, key, " was acknowledged, and is ", values[i])
			}
		}
		count, err := r.Get(ctx, "counter").Int64()
		must(err)
		least, most := counter.acknowledged, counter.acknowledged+counter.errors
		check(least <= count && count <= most, count, " is not in ", least, "..=", most)
	}
}
