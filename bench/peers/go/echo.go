package main

import (
	"fmt"
	"net"
)

// connBytes is the buffer that each connection has.
const connBytes = 1024

// serveEcho is Go's side of `bench echo`: a goroutine for each connection. It
// serves until it is killed.
func serveEcho() error {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go echo(conn)
	}
}

// echo gives back what comes. Connections have TCP_NODELAY set by the library.
func echo(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, connBytes)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if _, err = conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}
