// Compares what all validators must agree on.
package main

import (
	"encoding/json"
	"fmt"
)

// compareBlocks compares everything that the validators store of each height.
func compareBlocks(nodes []*node, last int64) {
	for height := int64(1); height <= last; height++ {
		var first string
		for _, node := range nodes {
			found := node.blockAt(height)
			if first == "" {
				first = found
			}
			if found != first {
				panic(fmt.Errorf("block %d of %s: %s, but of %s: %s",
					height, nodes[0].name, first, node.name, found))
			}
		}
	}
	fmt.Printf("blocks, application hashes and results of heights 1 to %d are equal\n", last)
}

// blockAt returns a block with its hash, and the application's results for it.
func (n *node) blockAt(height int64) string {
	var block, results json.RawMessage
	at := fmt.Sprint(height)
	check(n.ask("block", &block, "height", at))
	check(n.ask("block_results", &results, "height", at))
	var known struct {
		ID struct {
			Hash string
		} `json:"block_id"`
		Block struct {
			Header struct {
				Height  int64  `json:",string"`
				AppHash string `json:"app_hash"`
			}
		}
	}
	check(json.Unmarshal(block, &known))
	header := known.Block.Header
	if known.ID.Hash == "" || header.Height != height || (height > 1 && header.AppHash == "") {
		panic(fmt.Errorf("%s shows no block %d: %s", n.name, height, block))
	}
	return string(block) + string(results)
}
