module runstone/leveldb/tests

go 1.19
