// What the Go side uses of libfabric. The library is opened at first use: its data structures and the calls through them come
// from its headers, the few functions that it exports by symbol are looked up.
#ifndef SANSOCK_OFI_SHIM_H
#define SANSOCK_OFI_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

// Functions return 0 or a negative libfabric error, as libfabric's own do, unless said otherwise.

// san_load opens the library. cache is the size of its registration cache, "0" for none. What is wrong is put
// into why, and the result is then not 0.
int san_load(const char *cache, char *why, size_t size);
const char *san_strerror(int code);
uint32_t san_version(void);

// san_discover lists what the libfabric provider prov offers for connected endpoints.
int san_discover(const char *prov, size_t tx, size_t rx, struct fi_info **list);
void san_free(struct fi_info *info);

// san_info returns a copy of info for one connection or listener, with addresses of n bytes (0: none; 4 or 16).
struct fi_info *san_info(const struct fi_info *info, const uint8_t *src, int nsrc, uint16_t sport,
			 const uint8_t *dst, int ndst, uint16_t dport);

// san_address takes a socket address apart and returns the number of bytes in ip, 0 for one that is not IP.
int san_address(const void *addr, uint8_t ip[16], uint16_t *port);

// An event queue, with the descriptor to wait on and room for an event.
struct san_eq {
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	int fd;

	// The event, after san_eq_next has returned 1.
	uint32_t event; // FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN, or 0 for an error
	int err, prov_errno;
	uintptr_t fid;
	struct fi_info *info; // of FI_CONNREQ; the caller's
	uint32_t len;         // bytes in data, of which the last ones may be junk
	uint8_t data[256];
};

int san_fabric(const struct fi_info *info, struct fid_fabric **fabric);
int san_fabric_close(struct fid_fabric *fabric);
int san_eq_open(struct fid_fabric *fabric, struct san_eq **eq);
int san_eq_close(struct san_eq *eq);

// san_eq_next takes the next event. It returns 1 if there was one, 0 if there is none and the caller may sleep until
// the descriptor is readable, and SAN_BUSY if neither can be said just now.
int san_eq_next(struct san_eq *eq);
#define SAN_BUSY (-FI_EAGAIN)

// A passive endpoint.
int san_listen(struct san_eq *eq, struct fi_info *info, int backlog, struct fid_pep **pep, uint16_t *port);
int san_pep_close(struct fid_pep *pep);
int san_reject(struct san_eq *eq, struct fi_info *info, const uint8_t *data, size_t n);

// A completion. err is 0 if the operation succeeded.
struct san_completion {
	uint64_t context, len;
	int32_t err, prov_errno;
};

enum { SAN_BATCH = 32 };

// Offsets in the page that each endpoint has for itself.
enum { SAN_PAGE = 4096, SAN_FIRST_RECV = 0, SAN_FIRST_SEND = 1024, SAN_FENCE_TARGET = 2048, SAN_FENCE = 3072 };

// An endpoint with a domain of its own, so that no other connection's keys reach its memory, and a completion queue of
// its own, so that no other connection can overrun it.
struct san_ep {
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_ep *ep;
	int fd; // to wait on for completions

	uint8_t *page;
	struct fid_mr *page_mr, *fence_mr; // NULL where not needed
	void *page_desc;

	struct san_completion comps[SAN_BATCH];
};

int san_ep_open(struct san_eq *eq, struct fi_info *info, size_t cq_size, struct san_ep **ep, const char **step);
uintptr_t san_ep_fid(struct san_ep *e);
int san_connect(struct san_ep *e, struct fi_info *info, const uint8_t *data, size_t n);
int san_accept(struct san_ep *e, const uint8_t *data, size_t n);
int san_name(struct san_ep *e, int peer, uint8_t ip[16], uint16_t *port); // as san_address, or an error
int san_shutdown(struct san_ep *e);
int san_ep_close(struct san_ep *e); // the endpoint alone: completions can still be read
int san_cq_close(struct san_ep *e);
int san_ep_free(struct san_ep *e); // what is left, when all registrations are closed

// san_read takes up to SAN_BATCH completions into comps and returns how many; there may be more. san_poll does as well, and if there are none
// answers as san_eq_next does; with drained it does not read before it has found that there is something to read.
int san_read(struct san_ep *e);
int san_poll(struct san_ep *e, int drained);

// san_spin is san_read again and again until there is something, or the time is over.
int san_spin(struct san_ep *e, uint64_t nanoseconds);

// Memory and operations. Addresses are of memory that stays where it is until the operation has completed.
int san_register(struct san_ep *e, uintptr_t mem, size_t len, int remote_read, int remote_write, uint64_t key,
		 struct fid_mr **mr, void **desc, uint64_t *rkey);
int san_deregister(struct fid_mr *mr);
int san_register_fence(struct san_ep *e, uint64_t key);
int san_recv(struct san_ep *e, uintptr_t mem, size_t len, uintptr_t desc, uint64_t context);
int san_send(struct san_ep *e, uintptr_t mem, size_t len, uintptr_t desc, uint64_t context);
int san_write(struct san_ep *e, uintptr_t mem, size_t len, uintptr_t desc, uint64_t addr, uint64_t key, uint64_t context);
int san_rread(struct san_ep *e, uintptr_t mem, size_t len, uintptr_t desc, uint64_t addr, uint64_t key, uint64_t context);

// san_inject sends two pieces as one message; the memory may be used again at once. With counted there is a
// completion.
int san_inject(struct san_ep *e, const uint8_t *a, size_t na, const uint8_t *b, size_t nb, int counted, uint64_t context);
enum { SAN_MAX_INJECT = 1024 };

#endif
