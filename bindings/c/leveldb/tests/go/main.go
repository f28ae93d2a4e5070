// A Go program that uses LevelDB's C interface as the Go wrappers of LevelDB do: two goroutines
// write, one iterates, and after a reopen all entries are present.
package main

/*
#cgo LDFLAGS: -lleveldb
#include <stdlib.h>
#include <leveldb/c.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"
)

type database struct {
	db     *C.leveldb_t
	reads  *C.leveldb_readoptions_t
	writes *C.leveldb_writeoptions_t
}

func failure(text *C.char) error {
	if text == nil {
		return nil
	}
	defer C.leveldb_free(unsafe.Pointer(text))
	return errors.New(C.GoString(text))
}

func bytes(of []byte) (*C.char, C.size_t) {
	if len(of) == 0 {
		return nil, 0
	}
	return (*C.char)(unsafe.Pointer(&of[0])), C.size_t(len(of))
}

func open(path string) (*database, error) {
	options := C.leveldb_options_create()
	defer C.leveldb_options_destroy(options)
	C.leveldb_options_set_create_if_missing(options, 1)
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text *C.char
	db := C.leveldb_open(options, name, &text)
	if err := failure(text); err != nil {
		return nil, err
	}
	return &database{db, C.leveldb_readoptions_create(), C.leveldb_writeoptions_create()}, nil
}

func (d *database) close() {
	C.leveldb_close(d.db)
	C.leveldb_readoptions_destroy(d.reads)
	C.leveldb_writeoptions_destroy(d.writes)
}

func (d *database) put(key, value []byte) error {
	k, kn := bytes(key)
	v, vn := bytes(value)
	var text *C.char
	C.leveldb_put(d.db, d.writes, k, kn, v, vn, &text)
	return failure(text)
}

func (d *database) get(key []byte) ([]byte, error) {
	k, kn := bytes(key)
	var size C.size_t
	var text *C.char
	value := C.leveldb_get(d.db, d.reads, k, kn, &size, &text)
	if value == nil {
		return nil, failure(text)
	}
	defer C.leveldb_free(unsafe.Pointer(value))
	return C.GoBytes(unsafe.Pointer(value), C.int(size)), nil
}

func (d *database) count() int {
	walk := C.leveldb_create_iterator(d.db, d.reads)
	defer C.leveldb_iter_destroy(walk)
	count := 0
	C.leveldb_iter_seek_to_first(walk)
	for ; C.leveldb_iter_valid(walk) != 0; C.leveldb_iter_next(walk) {
		count++
	}
	return count
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	const each = 20000
	path := os.Args[1]
	db, err := open(path)
	check(err)
	if _, err := open(path); err == nil {
		check(errors.New("a second open works"))
	}
	var writers sync.WaitGroup
	for writer := 0; writer < 2; writer++ {
		writers.Add(1)
		go func(writer int) {
			defer writers.Done()
			for at := 0; at < each; at++ {
				check(db.put([]byte(fmt.Sprintf("%d/%06d", writer, at)), []byte(fmt.Sprint(at))))
			}
		}(writer)
	}
	writers.Wait()
	db.close()
	if db.put([]byte("late"), nil) == nil {
		check(errors.New("a closed database takes a write"))
	}
	db, err = open(path)
	check(err)
	value, err := db.get([]byte("1/012345"))
	check(err)
	if string(value) != "12345" || db.count() != 2*each {
		check(fmt.Errorf("%s, %d entries", value, db.count()))
	}
	db.close()
	fmt.Println("go: ok")
}
