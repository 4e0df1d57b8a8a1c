// SPDX-License-Identifier: Apache-2.0

// print-batches.c in Go. Build it against an installed library:
//
//	go build print-batches.go
//
// and with CGO_LDFLAGS="-Wl,-rpath,$(pkg-config --variable=libdir libbeton-loader)" where the system does not look for
// libraries.
package main

/*
#cgo pkg-config: libbeton-loader
#include <stdlib.h>
#include <beton/loader.h>
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

func open(path string) (*C.beton_loader, *C.beton_iterator, error) {
	var options C.beton_loader_options
	C.beton_loader_options_init(&options)
	options.batch_size = 4
	options.order = C.BETON_ORDER_RANDOM
	options.image.crop = C.BETON_CROP_RANDOM
	options.image.flip_probability = 0.5
	options.image.height = 32
	options.image.width = 32
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var err C.beton_error
	var loader *C.beton_loader
	var iterator *C.beton_iterator
	if C.beton_loader_open(&loader, name, &options, &err) != C.BETON_OK {
		return nil, nil, fmt.Errorf("%s", C.GoString(&err.message[0]))
	}
	if C.beton_iterator_open(&iterator, loader, 0, 0, &err) != C.BETON_OK {
		C.beton_loader_close(&loader)
		return nil, nil, fmt.Errorf("%s", C.GoString(&err.message[0]))
	}
	return loader, iterator, nil
}

// The next batch, which the caller releases; nil at the end of the epoch. With an error this batch is lost; the next one
// may be fine.
func next(iterator *C.beton_iterator) (*C.beton_batch, error) {
	var err C.beton_error
	var batch *C.beton_batch
	switch C.beton_iterator_next(iterator, &batch, -1, &err) {
	case C.BETON_OK:
		return batch, nil
	case C.BETON_END:
		return nil, nil
	}
	return nil, fmt.Errorf("%s", C.GoString(&err.message[0]))
}

func printBatch(batch *C.beton_batch) {
	fmt.Printf("batch at %d: %d samples, first %d;", batch.position, batch.count, *batch.sample_ids)
	for _, tensor := range unsafe.Slice(batch.tensors, batch.num_tensors) {
		fmt.Printf(" %s [", C.GoString(tensor.name))
		for d, size := range tensor.shape[:tensor.ndim] {
			if d > 0 {
				fmt.Print(", ")
			}
			fmt.Print(size)
		}
		fmt.Print("]")
	}
	fmt.Println()
}

func printEpoch(path string) (lost int, err error) {
	loader, iterator, err := open(path)
	if err != nil {
		return 0, err
	}
	defer C.beton_loader_close(&loader)
	defer C.beton_iterator_close(&iterator)
	for {
		batch, err := next(iterator)
		if err != nil {
			fmt.Fprintln(os.Stderr, "print-batches:", err)
			lost++
			continue
		}
		if batch == nil {
			return lost, nil
		}
		printBatch(batch)
		C.beton_batch_release(&batch)
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: print-batches FILE.beton")
		os.Exit(2)
	}
	lost, err := printEpoch(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "print-batches:", err)
	}
	if err != nil || lost > 0 {
		os.Exit(1)
	}
}
