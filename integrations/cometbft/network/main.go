// Four validators of CometBFT on loopback, killed under load and compared. This program starts the
// given CometBFT, and talks to it by HTTP, so it works with every version.
//
//  1. Make four homes whose databases are LevelDB's, and start a validator in each.
//  2. Send transactions to all of them, and note those that are acknowledged.
//  3. In each round, kill each validator in turn, then all at once. Start it again: the application
//     is in memory, so CometBFT replays the whole chain from the block store. Wait until the
//     validator has caught up.
//  4. Compare the blocks, application hashes and results of all heights. Look up each acknowledged
//     transaction at each validator.
//  5. Stop the validators, and verify each database: it must be a store of Runstone.
package main

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

const validators = 4

// How long a validator may take to answer after a start, to catch up, or to end.
const patience = 2 * time.Minute

// A deliberate mistake, with which the run must fail: it tests this test.
var mistake = flag.String("mistake", "", "what to do wrong: `forget` removes a block store")

// Validators die with the thread that started them, so that thread must stay.
func init() { runtime.LockOSThread() }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	program := flag.String("program", "", "the program cometbft")
	home := flag.String("home", "", "an empty directory")
	rounds := flag.Int("rounds", 2, "how many times each validator is killed")
	flag.Parse()
	defer func() {
		if failure := recover(); failure != nil {
			killAll()
			fmt.Fprintf(os.Stderr, "failed: %v; the logs are %s/node*/log\n", failure, *home)
			os.Exit(1)
		}
	}()
	nodes := makeHomes(*program, *home)
	for _, node := range nodes {
		node.start()
	}
	for _, node := range nodes {
		node.waitFor(2)
	}
	load := startLoad(nodes)
	for round := 1; round <= *rounds; round++ {
		oneRound(nodes)
		fmt.Printf("round %d: height %d, %d transactions acknowledged\n",
			round, nodes[0].height(), load.count())
	}
	load.stop()
	last := highest(nodes)
	for _, node := range nodes {
		node.waitFor(last)
	}
	compareBlocks(nodes, last)
	load.compare(nodes)
	for _, node := range nodes {
		node.notePeak()
		node.stop()
	}
	for _, node := range nodes {
		node.verify()
	}
	for _, node := range nodes {
		fmt.Printf("%s: %d kills, at most %d MiB resident, %d MiB of that not in files, %d MiB of data\n",
			node.name, node.kills, node.peak>>20, node.peakOwn>>20, size(node.data())>>20)
	}
}

// oneRound kills each validator in turn, then all of them.
func oneRound(nodes []*node) {
	for _, node := range nodes {
		time.Sleep(time.Duration(500+rand.Intn(1500)) * time.Millisecond)
		node.kill()
		// The other validators continue: three of four are more than two thirds.
		time.Sleep(time.Duration(rand.Intn(2000)) * time.Millisecond)
		if *mistake == "forget" {
			check(os.RemoveAll(filepath.Join(node.data(), "blockstore.db")))
		}
		node.start()
		// The validator takes part again, so the next one may be killed.
		node.waitFor(highest(nodes) + 3)
	}
	time.Sleep(time.Duration(500+rand.Intn(1500)) * time.Millisecond)
	before := highest(nodes)
	for _, node := range nodes {
		node.kill()
	}
	for _, node := range nodes {
		node.start()
	}
	for _, node := range nodes {
		node.waitFor(before + 3)
	}
}

func highest(nodes []*node) int64 {
	highest := int64(0)
	for _, node := range nodes {
		highest = max(highest, node.height())
	}
	return highest
}

// size returns the bytes of all files in a directory. Files that vanish during the walk do not
// count.
func size(directory string) int64 {
	bytes := int64(0)
	_ = filepath.Walk(directory, func(_ string, file os.FileInfo, err error) error {
		if err == nil && file.Mode().IsRegular() {
			bytes += file.Size()
		}
		return nil
	})
	return bytes
}
