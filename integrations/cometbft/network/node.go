// A validator: its home, its process, and its answers.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The options that all validators share. Blocks come fast, so that there are many of them.
const options = `
proxy_app = "kvstore"
log_level = "txindex:debug,*:info"
db_backend = "cleveldb"
[p2p]
allow_duplicate_ip = true
addr_book_strict = false
[consensus]
timeout_propose = "500ms"
timeout_prevote = "300ms"
timeout_precommit = "300ms"
timeout_commit = "100ms"
[tx_index]
indexer = "kv"
`

type node struct {
	program, home, name, address string
	process                      *exec.Cmd
	ended                        chan error
	kills                        int
	// Peak bytes of resident memory, and of its part that is not pages of files.
	peak, peakOwn int64
}

// All running processes, so that none is left behind.
var running sync.Map

func killAll() {
	running.Range(func(process, _ any) bool {
		_ = process.(*os.Process).Kill()
		return true
	})
}

// makeHomes makes the homes. Each run of this program has its own loopback addresses.
func makeHomes(program, home string) []*node {
	check(os.MkdirAll(home, 0o755))
	file := filepath.Join(home, "options.toml")
	check(os.WriteFile(file, []byte(options), 0o644))
	net := fmt.Sprintf("127.%d.%d", 64+os.Getpid()%128, os.Getpid()/128%256)
	made := exec.Command(program, "testnet", "--v", strconv.Itoa(validators), "--o", home,
		"--config", file, "--starting-ip-address", net+".1", "--home", filepath.Join(home, "none"))
	if text, err := made.CombinedOutput(); err != nil {
		panic(fmt.Errorf("testnet: %w: %s", err, text))
	}
	nodes := make([]*node, validators)
	for at := range nodes {
		name := fmt.Sprintf("node%d", at)
		address := fmt.Sprintf("%s.%d", net, at+1)
		nodes[at] = &node{program: program, home: filepath.Join(home, name), name: name,
			address: address}
	}
	return nodes
}

func (n *node) data() string { return filepath.Join(n.home, "data") }

func (n *node) start() {
	log, err := os.OpenFile(filepath.Join(n.home, "log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(err)
	defer log.Close()
	n.process = exec.Command(n.program, "start", "--home", n.home,
		"--p2p.laddr", "tcp://"+n.address+":26656", "--rpc.laddr", "tcp://"+n.address+":26657")
	n.process.Stdout, n.process.Stderr = log, log
	// No validator outlives this program, however it ends.
	n.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(n.process.Start())
	running.Store(n.process.Process, true)
	n.ended = make(chan error, 1)
	go func(process *exec.Cmd, ended chan error) {
		err := process.Wait()
		running.Delete(process.Process)
		ended <- err
	}(n.process, n.ended)
}

func (n *node) kill() {
	select {
	case err := <-n.ended:
		panic(fmt.Errorf("%s ended by itself: %v", n.name, err))
	default:
	}
	n.notePeak()
	check(n.process.Process.Kill())
	<-n.ended
	n.kills++
}

// stop ends the validator as an operator does; it must then close its databases.
func (n *node) stop() {
	check(n.process.Process.Signal(syscall.SIGTERM))
	select {
	case <-n.ended:
	case <-time.After(patience):
		panic(fmt.Errorf("%s does not stop", n.name))
	}
}

var indexed = regexp.MustCompile(`indexed transactions\s+module=txindex height=(\d+)`)

// indexedHeights returns the heights whose index was written: CometBFT logs each after the write.
func (n *node) indexedHeights() map[int64]bool {
	log, err := os.ReadFile(filepath.Join(n.home, "log"))
	check(err)
	heights := map[int64]bool{}
	for _, found := range indexed.FindAllSubmatch(log, -1) {
		height, err := strconv.ParseInt(string(found[1]), 10, 64)
		check(err)
		heights[height] = true
	}
	return heights
}

// notePeak notes the memory of a process that may soon be gone.
func (n *node) notePeak() {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.Process.Pid))
	check(err)
	of := func(name string) int64 {
		_, rest, _ := strings.Cut(string(status), "\n"+name+":")
		fields := strings.Fields(rest)
		kibibytes, err := strconv.ParseInt(fields[0], 10, 64)
		check(err)
		return kibibytes << 10
	}
	n.peak = max(n.peak, of("VmHWM"))
	n.peakOwn = max(n.peakOwn, of("RssAnon"))
}

var client = http.Client{Timeout: 30 * time.Second}

// ask calls a method. Arguments are in the form of CometBFT: text in quotes, bytes as 0x and hex.
func (n *node) ask(method string, result any, arguments ...string) error {
	values := url.Values{}
	for at := 0; at < len(arguments); at += 2 {
		values.Set(arguments[at], arguments[at+1])
	}
	got, err := client.Get("http://" + n.address + ":26657/" + method + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Error  json.RawMessage
		Result json.RawMessage
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%s of %s: %w: %s", method, n.name, err, text)
	}
	if len(answer.Error) > 0 {
		return fmt.Errorf("%s of %s: %s", method, n.name, answer.Error)
	}
	return json.Unmarshal(answer.Result, result)
}

type syncInfo struct {
	Height  int64  `json:"latest_block_height,string"`
	Behind  bool   `json:"catching_up"`
	AppHash string `json:"latest_app_hash"`
}

func (n *node) sync() (syncInfo, error) {
	var status struct {
		Sync syncInfo `json:"sync_info"`
	}
	err := n.ask("status", &status)
	return status.Sync, err
}

// height returns the height of the newest block; 0 if the validator does not answer.
func (n *node) height() int64 {
	found, err := n.sync()
	if err != nil {
		return 0
	}
	return found.Height
}

// waitFor waits until the validator has the block of this height and takes part.
func (n *node) waitFor(height int64) {
	var last error
	for until := time.Now().Add(patience); time.Now().Before(until); {
		select {
		case err := <-n.ended:
			panic(fmt.Errorf("%s ended: %v", n.name, err))
		case <-time.After(50 * time.Millisecond):
		}
		found, err := n.sync()
		if err == nil && !found.Behind && found.Height >= height {
			return
		}
		last = errors.Join(err, fmt.Errorf("it is at height %d", found.Height))
	}
	panic(fmt.Errorf("%s does not reach height %d: %w", n.name, height, last))
}
