// The load: many transactions that nobody waits for, and some whose acknowledgement is noted.
package main

import (
	"encoding/base64"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"time"
)

// The bytes of a large value, and the pause between the transactions of one sender.
const (
	largeBytes = 2000
	pause      = 5 * time.Millisecond
)

type acknowledged struct {
	key, value, hash string
	height           int64
}

type load struct {
	lock    sync.Mutex
	done    []acknowledged
	ends    chan struct{}
	senders sync.WaitGroup
}

// startLoad starts two senders for each validator.
func startLoad(nodes []*node) *load {
	l := &load{ends: make(chan struct{})}
	for at, node := range nodes {
		l.run(func(number int) { l.commit(node, fmt.Sprintf("a%d-%d", at, number)) })
		l.run(func(number int) { pour(node, fmt.Sprintf("b%d-%d", at, number)) })
	}
	return l
}

// run calls a sender again and again, until the load stops.
func (l *load) run(send func(number int)) {
	l.senders.Add(1)
	go func() {
		defer l.senders.Done()
		for number := 0; ; number++ {
			select {
			case <-l.ends:
				return
			case <-time.After(pause):
				send(number)
			}
		}
	}()
}

func (l *load) stop() {
	close(l.ends)
	l.senders.Wait()
}

func (l *load) count() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return len(l.done)
}

// commit sends a transaction and waits for its block. A validator that is killed in the meantime
// acknowledges nothing; its transaction may be in a block or not.
func (l *load) commit(node *node, key string) {
	value := fmt.Sprint(rand.Int63())
	var answer struct {
		Height int64 `json:",string"`
		Hash   string
		Check  struct{ Code int } `json:"check_tx"`
		Result struct{ Code int } `json:"tx_result"`
	}
	err := node.ask("broadcast_tx_commit", &answer, "tx", `"`+key+"="+value+`"`)
	if err != nil || answer.Check.Code != 0 || answer.Result.Code != 0 || answer.Height == 0 {
		return
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	l.done = append(l.done, acknowledged{key, value, answer.Hash, answer.Height})
}

// pour sends a large transaction to fill the stores, and does not wait.
func pour(node *node, key string) {
	value := strings.Repeat(fmt.Sprintf("%08x", rand.Uint32()), largeBytes/8)
	var answer struct{}
	_ = node.ask("broadcast_tx_sync", &answer, "tx", `"`+key+"="+value+`"`)
}

// compare looks up each acknowledged transaction at each validator: in its block, in the
// application, whose state was replayed from blocks, and in the index of transactions.
//
// CometBFT writes the index some time after the block, and not again after a crash. So the index of
// a validator that is killed in between lacks the transactions of a block. But no transaction of a
// block whose index was written may be missing.
func (l *load) compare(nodes []*node) {
	if len(l.done) == 0 {
		panic("no transaction was acknowledged")
	}
	gaps, heights := 0, map[int64]bool{}
	for _, node := range nodes {
		indexed := node.indexedHeights()
		for _, sent := range l.done {
			heights[sent.height] = true
			node.expectStored(sent)
			if indexed[sent.height] {
				node.expectIndexed(sent)
			}
		}
		for height := range heights {
			if !indexed[height] {
				gaps++
			}
		}
	}
	// Each kill can leave the index without two blocks: the one at the kill, and the next one soon
	// after the restart.
	kills := 0
	for _, node := range nodes {
		kills += node.kills
	}
	if gaps > 2*kills {
		panic(fmt.Errorf("%d gaps in indexes after %d kills", gaps, kills))
	}
	fmt.Printf("%d acknowledged transactions are at all %d validators; "+
		"kills kept CometBFT from indexing %d of %d blocks\n",
		len(l.done), len(nodes), gaps, len(heights)*len(nodes))
}

func (n *node) expectStored(sent acknowledged) {
	var found struct {
		Block struct {
			Data struct{ Txs []string }
		}
	}
	check(n.ask("block", &found, "height", fmt.Sprint(sent.height)))
	text := base64.StdEncoding.EncodeToString([]byte(sent.key + "=" + sent.value))
	if !slices.Contains(found.Block.Data.Txs, text) {
		panic(fmt.Errorf("%s lacks %v in its block", n.name, sent))
	}
	var stored struct {
		Response struct{ Value string }
	}
	check(n.ask("abci_query", &stored, "data", `"`+sent.key+`"`))
	value, err := base64.StdEncoding.DecodeString(stored.Response.Value)
	check(err)
	if string(value) != sent.value {
		panic(fmt.Errorf("the application of %s has %q for %v", n.name, value, sent))
	}
}

func (n *node) expectIndexed(sent acknowledged) {
	var found struct {
		Height int64 `json:",string"`
		Tx     string
	}
	check(n.ask("tx", &found, "hash", "0x"+sent.hash))
	text, err := base64.StdEncoding.DecodeString(found.Tx)
	check(err)
	if found.Height != sent.height || string(text) != sent.key+"="+sent.value {
		panic(fmt.Errorf("%s has %s at height %d for %v", n.name, text, found.Height, sent))
	}
}
