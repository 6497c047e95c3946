// Package hostcheck tells whether this process may do what a SAN between the processes of a host
// needs.
package hostcheck
