// The databases of a validator that has ended: each must be a store of Runstone without damage.
package main

/*
#cgo LDFLAGS: -lleveldb
#include <stdlib.h>
#include <leveldb/c.h>
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"
)

func (n *node) verify() {
	databases, err := filepath.Glob(filepath.Join(n.data(), "*.db"))
	check(err)
	names := ""
	for _, path := range databases {
		name := filepath.Base(path)
		names += " " + name
		current, err := os.ReadFile(filepath.Join(path, "CURRENT"))
		check(err)
		// In a database of LevelDB itself, CURRENT names MANIFEST-NNNNNN.
		if !strings.Contains(string(current), ".manifest") {
			panic(fmt.Errorf("%s is no store of Runstone: CURRENT is %q", path, current))
		}
		// In this library, the repair function reads and checks every byte, and repairs nothing.
		var failure *C.char
		text := C.CString(path)
		C.leveldb_repair_db(nil, text, &failure)
		C.free(unsafe.Pointer(text))
		if failure != nil {
			panic(fmt.Errorf("%s: %s", path, C.GoString(failure)))
		}
	}
	for _, wanted := range []string{"blockstore.db", "state.db", "tx_index.db", "evidence.db"} {
		if !strings.Contains(names, wanted) {
			panic(fmt.Errorf("%s has only%s", n.data(), names))
		}
	}
}
