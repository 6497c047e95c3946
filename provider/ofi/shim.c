//go:build ofi && cgo && linux

#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

static struct {
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
	void (*freeinfo)(struct fi_info *);
	struct fi_info *(*dupinfo)(const struct fi_info *);
	int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	const char *(*strerror)(int);
	uint32_t (*version)(void);
} lib;

int san_load(const char *cache, char *why, size_t size)
{
	static const char name[] = "libfabric.so.1";
	const char *set = getenv("FI_MR_CACHE_MAX_COUNT");
	void *so;

	// The library reads its environment once. If others in this process have brought it in, that may be over.
	if ((so = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) != NULL) {
		dlclose(so);
		if (set == NULL || strcmp(set, cache) != 0) {
			snprintf(why, size, "libfabric is in use by another part of this process, "
				 "without FI_MR_CACHE_MAX_COUNT=%s in the environment", cache);
			return -1;
		}
	}
	// The cache keeps memory registered, and for every access, after the registration was closed.
	setenv("FI_MR_CACHE_MAX_COUNT", cache, 1);
	// A library that libfabric brings along takes over SIGSEGV, and hides Go's own report.
	setenv("IPATH_NO_BACKTRACE", "1", 0);
	if ((so = dlopen(name, RTLD_NOW | RTLD_LOCAL)) == NULL) {
		snprintf(why, size, "%s", dlerror());
		return -1;
	}
	lib.getinfo = (__typeof__(lib.getinfo)) dlsym(so, "fi_getinfo");
	lib.freeinfo = (__typeof__(lib.freeinfo)) dlsym(so, "fi_freeinfo");
	lib.dupinfo = (__typeof__(lib.dupinfo)) dlsym(so, "fi_dupinfo");
	lib.fabric = (__typeof__(lib.fabric)) dlsym(so, "fi_fabric");
	lib.strerror = (__typeof__(lib.strerror)) dlsym(so, "fi_strerror");
	lib.version = (__typeof__(lib.version)) dlsym(so, "fi_version");
	if (!lib.getinfo || !lib.freeinfo || !lib.dupinfo || !lib.fabric || !lib.strerror || !lib.version) {
		snprintf(why, size, "%s lacks functions", name);
		return -1;
	}
	return 0;
}

const char *san_strerror(int code) { return lib.strerror(code); }
uint32_t san_version(void) { return lib.version(); }

int san_discover(const char *prov, size_t tx, size_t rx, struct fi_info **list)
{
	struct fi_info *hints = lib.dupinfo(NULL);
	int ret;

	if (hints == NULL)
		return -FI_ENOMEM;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_RX_CQ_DATA; // concerns writes with data, of which there are none
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_WAW;
	hints->tx_attr->size = tx;
	hints->rx_attr->size = rx;
	hints->fabric_attr->prov_name = strdup(prov);
	ret = lib.getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, list);
	lib.freeinfo(hints);
	return ret;
}

void san_free(struct fi_info *info) { lib.freeinfo(info); }

// set_address replaces an address of an info.
static int set_address(void **addr, size_t *len, const uint8_t *ip, int n, uint16_t port)
{
	free(*addr);
	*addr = NULL;
	*len = 0;
	if (n == 4) {
		struct sockaddr_in *sa = calloc(1, sizeof *sa);
		if (sa == NULL)
			return -1;
		sa->sin_family = AF_INET;
		sa->sin_port = htons(port);
		memcpy(&sa->sin_addr, ip, 4);
		*addr = sa;
		*len = sizeof *sa;
	} else if (n == 16) {
		struct sockaddr_in6 *sa = calloc(1, sizeof *sa);
		if (sa == NULL)
			return -1;
		sa->sin6_family = AF_INET6;
		sa->sin6_port = htons(port);
		memcpy(&sa->sin6_addr, ip, 16);
		*addr = sa;
		*len = sizeof *sa;
	}
	return 0;
}

struct fi_info *san_info(const struct fi_info *info, const uint8_t *src, int nsrc, uint16_t sport,
			 const uint8_t *dst, int ndst, uint16_t dport)
{
	struct fi_info *dup = lib.dupinfo(info);

	if (dup == NULL)
		return NULL;
	if (set_address(&dup->src_addr, &dup->src_addrlen, src, nsrc, sport) ||
	    set_address(&dup->dest_addr, &dup->dest_addrlen, dst, ndst, dport)) {
		lib.freeinfo(dup);
		return NULL;
	}
	return dup;
}

int san_address(const void *addr, uint8_t ip[16], uint16_t *port)
{
	const struct sockaddr *sa = addr;

	if (sa == NULL)
		return 0;
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = addr;
		memcpy(ip, &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
		return 4;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = addr;
		memcpy(ip, &in6->sin6_addr, 16);
		*port = ntohs(in6->sin6_port);
		return 16;
	}
	return 0;
}

int san_fabric(const struct fi_info *info, struct fid_fabric **fabric)
{
	return lib.fabric(info->fabric_attr, fabric, NULL);
}

int san_fabric_close(struct fid_fabric *fabric) { return fi_close(&fabric->fid); }

int san_eq_open(struct fid_fabric *fabric, struct san_eq **out)
{
	struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
	struct san_eq *eq = calloc(1, sizeof *eq);
	int ret;

	if (eq == NULL)
		return -FI_ENOMEM;
	eq->fabric = fabric;
	if ((ret = fi_eq_open(fabric, &attr, &eq->eq, NULL)) != 0) {
		free(eq);
		return ret;
	}
	if ((ret = fi_control(&eq->eq->fid, FI_GETWAIT, &eq->fd)) != 0) {
		fi_close(&eq->eq->fid);
		free(eq);
		return ret;
	}
	*out = eq;
	return 0;
}

int san_eq_close(struct san_eq *eq)
{
	int ret = fi_close(&eq->eq->fid);

	free(eq);
	return ret;
}

// May the caller sleep on fd? A level-triggered look after fi_trywait is needed, because Go's poller is edge-triggered and a
// descriptor that was ready all along gives no edge.
static int may_sleep(struct fid_fabric *fabric, struct fid *fid, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return fi_trywait(fabric, &fid, 1) == 0 && poll(&p, 1, 0) == 0;
}

// How often to look again when neither reading nor sleeping is possible.
enum { TRIES = 16 };

int san_eq_next(struct san_eq *eq)
{
	union {
		struct fi_eq_cm_entry cm;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + sizeof eq->data];
	} u;

	for (int i = 0; i < TRIES; i++) {
		ssize_t n;

		memset(&u, 0, sizeof u.cm);
		eq->event = 0;
		errno = 0; // the tcp provider of 1.17 takes a stale EAGAIN for one of its own
		n = fi_eq_read(eq->eq, &eq->event, &u, sizeof u, 0);
		if (n >= (ssize_t) sizeof u.cm) {
			eq->err = eq->prov_errno = 0;
			eq->fid = (uintptr_t) u.cm.fid;
			eq->info = eq->event == FI_CONNREQ ? u.cm.info : NULL;
			eq->len = n - sizeof u.cm;
			memcpy(eq->data, u.room + offsetof(struct fi_eq_cm_entry, data), eq->len);
			return 1;
		}
		if (n == -FI_EAVAIL) {
			struct fi_eq_err_entry e = {.err_data = eq->data, .err_data_size = sizeof eq->data};

			n = fi_eq_readerr(eq->eq, &e, 0);
			if (n > 0) {
				eq->event = 0;
				eq->err = e.err ? e.err : FI_EOTHER;
				eq->prov_errno = e.prov_errno;
				eq->fid = (uintptr_t) e.fid;
				eq->info = NULL;
				eq->len = e.err_data == eq->data ? e.err_data_size : 0; // without data it was set to NULL
				return 1;
			}
		}
		if (n < 0 && n != -FI_EAGAIN && n != -FI_EAVAIL && n != -FI_EINTR)
			return n;
		if (may_sleep(eq->fabric, &eq->eq->fid, eq->fd))
			return 0;
	}
	return SAN_BUSY;
}

int san_listen(struct san_eq *eq, struct fi_info *info, int backlog, struct fid_pep **out, uint16_t *port)
{
	struct sockaddr_storage addr;
	size_t len = sizeof addr;
	uint8_t ip[16];
	struct fid_pep *pep;
	int ret;

	if ((ret = fi_passive_ep(eq->fabric, info, &pep, NULL)) != 0)
		return ret;
	(void) fi_control(&pep->fid, FI_BACKLOG, &backlog); // not every provider knows of it
	if ((ret = fi_pep_bind(pep, &eq->eq->fid, 0)) == 0 && (ret = fi_listen(pep)) == 0 &&
	    (ret = fi_getname(&pep->fid, &addr, &len)) == 0 && san_address(&addr, ip, port) == 0)
		ret = -FI_EOTHER;
	if (ret != 0)
		fi_close(&pep->fid);
	else
		*out = pep;
	return ret;
}

int san_pep_close(struct fid_pep *pep) { return fi_close(&pep->fid); }

int san_reject(struct san_eq *eq, struct fi_info *info, const uint8_t *data, size_t n)
{
	struct fi_info *bare = san_info(info, NULL, 0, 0, NULL, 0, 0);
	struct fid_pep *pep;
	int ret;

	if (bare == NULL)
		return -FI_ENOMEM;
	// The listener may be closed by now. The call needs a passive endpoint, but not that one.
	bare->handle = NULL;
	if ((ret = fi_passive_ep(eq->fabric, bare, &pep, NULL)) == 0) {
		if ((ret = fi_pep_bind(pep, &eq->eq->fid, 0)) == 0)
			ret = fi_reject(pep, info->handle, data, n);
		fi_close(&pep->fid);
	}
	lib.freeinfo(bare);
	return ret;
}

int san_ep_open(struct san_eq *eq, struct fi_info *info, size_t cq_size, struct san_ep **out, const char **step)
{
	struct fi_cq_attr attr = {.size = cq_size, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
	struct san_ep *e = calloc(1, sizeof *e);
	void *page;
	int ret;

	if (e == NULL)
		return -FI_ENOMEM;
	e->fabric = eq->fabric;
	*step = "memory";
	page = mmap(NULL, SAN_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED) {
		ret = -FI_ENOMEM;
		goto fail;
	}
	e->page = page;
	*step = "fi_domain";
	if ((ret = fi_domain(e->fabric, info, &e->domain, NULL)) != 0)
		goto fail;
	*step = "fi_cq_open";
	if ((ret = fi_cq_open(e->domain, &attr, &e->cq, NULL)) != 0 ||
	    (ret = fi_control(&e->cq->fid, FI_GETWAIT, &e->fd)) != 0)
		goto fail;
	if (info->domain_attr->mr_mode & FI_MR_LOCAL) {
		*step = "fi_mr_reg";
		ret = fi_mr_reg(e->domain, e->page, SAN_PAGE, FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, 0, 0,
				&e->page_mr, NULL);
		if (ret != 0)
			goto fail;
		e->page_desc = fi_mr_desc(e->page_mr);
	}
	*step = "fi_endpoint";
	if ((ret = fi_endpoint(e->domain, info, &e->ep, NULL)) != 0)
		goto fail;
	*step = "fi_enable";
	if ((ret = fi_ep_bind(e->ep, &eq->eq->fid, 0)) != 0 ||
	    (ret = fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV)) != 0 || (ret = fi_enable(e->ep)) != 0)
		goto fail;
	*out = e;
	return 0;
fail:
	if (e->ep)
		san_ep_close(e);
	if (e->cq)
		san_cq_close(e);
	san_ep_free(e);
	return ret;
}

uintptr_t san_ep_fid(struct san_ep *e) { return (uintptr_t) &e->ep->fid; }

int san_connect(struct san_ep *e, struct fi_info *info, const uint8_t *data, size_t n)
{
	return fi_connect(e->ep, info->dest_addr, data, n);
}

int san_accept(struct san_ep *e, const uint8_t *data, size_t n) { return fi_accept(e->ep, data, n); }

int san_name(struct san_ep *e, int peer, uint8_t ip[16], uint16_t *port)
{
	struct sockaddr_storage addr;
	size_t len = sizeof addr;
	int ret = peer ? fi_getpeer(e->ep, &addr, &len) : fi_getname(&e->ep->fid, &addr, &len);

	return ret != 0 ? ret : san_address(&addr, ip, port);
}

int san_shutdown(struct san_ep *e) { return fi_shutdown(e->ep, 0); }

int san_ep_close(struct san_ep *e)
{
	int ret = fi_close(&e->ep->fid);

	e->ep = NULL;
	return ret;
}

int san_cq_close(struct san_ep *e)
{
	int ret = fi_close(&e->cq->fid);

	e->cq = NULL;
	return ret;
}

int san_ep_free(struct san_ep *e)
{
	int ret = 0;

	if (e->page_mr)
		fi_close(&e->page_mr->fid);
	if (e->fence_mr)
		fi_close(&e->fence_mr->fid);
	if (e->domain)
		ret = fi_close(&e->domain->fid);
	if (e->page)
		munmap(e->page, SAN_PAGE);
	free(e);
	return ret;
}

int san_read(struct san_ep *e)
{
	struct fi_cq_msg_entry entries[SAN_BATCH];
	int n = 0;

	while (n < SAN_BATCH) {
		struct san_completion *c = &e->comps[n];
		ssize_t k = fi_cq_read(e->cq, entries, SAN_BATCH - n);

		if (k > 0) {
			for (ssize_t i = 0; i < k; i++)
				c[i] = (struct san_completion){(uintptr_t) entries[i].op_context, entries[i].len, 0, 0};
			n += k; // and no further look, as somebody waits for these
		} else if (k == -FI_EAVAIL) {
			struct fi_cq_err_entry err = {0};

			if (fi_cq_readerr(e->cq, &err, 0) == 1) {
				*c = (struct san_completion){(uintptr_t) err.op_context, 0, err.err ? err.err : FI_EOTHER,
							     err.prov_errno};
				n++;
				continue;
			}
		} else if (k == -FI_EINTR) {
			continue;
		} else if (k < 0 && k != -FI_EAGAIN && n == 0) {
			return k;
		}
		break;
	}
	return n;
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

int san_spin(struct san_ep *e, uint64_t nanoseconds)
{
	uint64_t begin = now();
	int n;

	do
		n = san_read(e);
	while (n == 0 && now() - begin < nanoseconds);
	return n;
}

int san_poll(struct san_ep *e, int drained)
{
	for (int i = 0; i < TRIES; i++) {
		int n = i == 0 && drained ? 0 : san_read(e);

		if (n != 0)
			return n == SAN_BUSY ? -FI_EOTHER : n;
		if (may_sleep(e->fabric, &e->cq->fid, e->fd))
			return 0;
	}
	return SAN_BUSY;
}

int san_register(struct san_ep *e, uintptr_t mem, size_t len, int remote_read, int remote_write, uint64_t key,
		 struct fid_mr **mr, void **desc, uint64_t *rkey)
{
	uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE; // what is exposed may also be sent and received
	int ret;

	if (remote_read)
		access |= FI_REMOTE_READ;
	if (remote_write)
		access |= FI_REMOTE_WRITE;
	if ((ret = fi_mr_reg(e->domain, (void *) mem, len, access, 0, key, 0, mr, NULL)) != 0)
		return ret;
	*desc = fi_mr_desc(*mr);
	*rkey = fi_mr_key(*mr);
	return 0;
}

int san_deregister(struct fid_mr *mr) { return fi_close(&mr->fid); }

int san_register_fence(struct san_ep *e, uint64_t key)
{
	return fi_mr_reg(e->domain, e->page + SAN_FENCE_TARGET, 8, FI_REMOTE_READ, 0, key, 0, &e->fence_mr, NULL);
}

int san_recv(struct san_ep *e, uintptr_t mem, size_t len, uintptr_t desc, uint64_t context)
{
	return fi_recv(e->ep, (void *) mem, len, (void *) desc, FI_ADDR_UNSPEC, (void *) (uintptr_t) context);
}

int san_send(struct san_ep *e, uintptr_t mem, size_t len, uintptr_t desc, uint64_t context)
{
	return fi_send(e->ep, (void *) mem, len, (void *) desc, FI_ADDR_UNSPEC, (void *) (uintptr_t) context);
}

int san_write(struct san_ep *e, uintptr_t mem, size_t len, uintptr_t desc, uint64_t addr, uint64_t key, uint64_t context)
{
	return fi_write(e->ep, (void *) mem, len, (void *) desc, FI_ADDR_UNSPEC, addr, key, (void *) (uintptr_t) context);
}

int san_rread(struct san_ep *e, uintptr_t mem, size_t len, uintptr_t desc, uint64_t addr, uint64_t key, uint64_t context)
{
	return fi_read(e->ep, (void *) mem, len, (void *) desc, FI_ADDR_UNSPEC, addr, key, (void *) (uintptr_t) context);
}

int san_inject(struct san_ep *e, const uint8_t *a, size_t na, const uint8_t *b, size_t nb, int counted, uint64_t context)
{
	uint8_t buf[SAN_MAX_INJECT];

	if (na + nb > sizeof buf)
		return -FI_EMSGSIZE;
	if (na > 0)
		memcpy(buf, a, na);
	if (nb > 0)
		memcpy(buf + na, b, nb);
	if (counted) {
		struct iovec iov = {.iov_base = buf, .iov_len = na + nb};
		struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .context = (void *) (uintptr_t) context};

		return fi_sendmsg(e->ep, &msg, FI_INJECT | FI_COMPLETION);
	}
	return fi_inject(e->ep, buf, na + nb, FI_ADDR_UNSPEC);
}
