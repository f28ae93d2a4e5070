//go:build tools

// The programs and packages that test.sh builds and tests, so that go.mod and go.sum name each of
// their modules. None of this is our code.
package tools

import (
	_ "github.com/cometbft/cometbft-db"
	_ "github.com/cometbft/cometbft/cmd/cometbft"
	_ "github.com/jmhodges/levigo"
)
