/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Finds and interprets call frame information. */
#include "capture/cfi.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "capture/elf.h"

/* DWARF 5, table 7.29, and what GNU and arm64 added to it */
enum {
	OP_NOP = 0x00, OP_SET_LOC = 0x01, OP_ADVANCE1 = 0x02, OP_ADVANCE2 = 0x03, OP_ADVANCE4 = 0x04,
	OP_OFFSET_EXT = 0x05, OP_RESTORE_EXT = 0x06, OP_UNDEFINED = 0x07, OP_SAME = 0x08, OP_REGISTER = 0x09,
	OP_REMEMBER = 0x0a, OP_RESTORE_STATE = 0x0b, OP_DEF_CFA = 0x0c, OP_DEF_CFA_REG = 0x0d, OP_DEF_CFA_OFF = 0x0e,
	OP_DEF_CFA_EXPR = 0x0f, OP_EXPR = 0x10, OP_OFFSET_EXT_SF = 0x11, OP_DEF_CFA_SF = 0x12,
	OP_DEF_CFA_OFF_SF = 0x13, OP_VAL_OFFSET = 0x14, OP_VAL_OFFSET_SF = 0x15, OP_VAL_EXPR = 0x16,
	OP_NEGATE_RA = 0x2d, OP_ARGS_SZ = 0x2e, OP_NEG_OFFSET_EXT = 0x2f,
	OP_ADVANCE = 0x40, OP_OFFSET = 0x80, OP_RESTORE = 0xc0,	/* in the upper two bits */
};

/* How a pointer is written (Linux Standard Base, "DWARF Exception Header Encoding") */
enum {
	PE_PTR = 0x00, PE_ULEB = 0x01, PE_U2 = 0x02, PE_U4 = 0x03, PE_U8 = 0x04, PE_SLEB = 0x09, PE_S2 = 0x0a,
	PE_S4 = 0x0b, PE_S8 = 0x0c, PE_FORM = 0x0f,
	PE_PCREL = 0x10, PE_DATAREL = 0x30, PE_BASE = 0x70, PE_INDIRECT = 0x80, PE_OMIT = 0xff,
};

enum { REMEMBERED_MAX = 8 };

struct cursor {
	const uint8_t *p, *end;
	uint64_t vaddr;		/* of p */
	bool bad;
};

struct cie {
	uint64_t code_align;
	int64_t data_align;
	uint8_t fde_enc;
	bool has_aug;		/* FDEs have a length of augmentation data */
	struct cursor insns;
};

/* --- reading ----------------------------------------------------------------------------------- */

/* Bytes of the file at a virtual address, as many as its segment has; how many. */
static size_t read_at(const struct dl_elf *e, uint64_t vaddr, void *buf, size_t sz)
{
	for (uint32_t i = 0; i < e->load_cnt; i++) {
		const uint64_t into = vaddr - e->load[i].vaddr;
		ssize_t n;

		if (vaddr < e->load[i].vaddr || into >= e->load[i].sz)
			continue;
		if (sz > e->load[i].sz - into)
			sz = e->load[i].sz - into;
		do
			n = pread(e->fd, buf, sz, (off_t)(e->load[i].off + into));
		while (n < 0 && errno == EINTR);
		return n < 0 ? 0 : (size_t)n;
	}
	return 0;
}

static uint64_t take(struct cursor *c, size_t sz)
{
	uint64_t v = 0;

	if (c->bad || (size_t)(c->end - c->p) < sz) {
		c->bad = true;
		return 0;
	}
	for (size_t i = 0; i < sz; i++)
		v |= (uint64_t)c->p[i] << (8 * i);
	c->p += sz;
	c->vaddr += sz;
	return v;
}

static uint64_t take_uleb(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		const uint64_t b = take(c, 1);

		v |= (b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	c->bad = true;
	return 0;
}

static int64_t take_sleb(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		const uint64_t b = take(c, 1);

		v |= (b & 0x7f) << shift;
		if (b & 0x80)
			continue;
		if ((b & 0x40) && shift + 7 < 64)
			v |= ~UINT64_C(0) << (shift + 7);
		return (int64_t)v;
	}
	c->bad = true;
	return 0;
}

static const uint8_t *take_bytes(struct cursor *c, uint64_t sz)
{
	const uint8_t *p = c->p;

	if (c->bad || sz > (uint64_t)(c->end - c->p)) {
		c->bad = true;
		return NULL;
	}
	c->p += sz;
	c->vaddr += sz;
	return p;
}

static uint64_t take_value(struct cursor *c, uint8_t enc)
{
	switch (enc & PE_FORM) {
	case PE_PTR:
	case PE_U8:
	case PE_S8:
		return take(c, 8);
	case PE_ULEB:
		return take_uleb(c);
	case PE_SLEB:
		return (uint64_t)take_sleb(c);
	case PE_U2:
		return take(c, 2);
	case PE_S2:
		return (uint64_t)(int64_t)(int16_t)take(c, 2);
	case PE_U4:
		return take(c, 4);
	case PE_S4:
		return (uint64_t)(int64_t)(int32_t)take(c, 4);
	default:
		c->bad = true;
		return 0;
	}
}

static uint64_t take_pointer(struct cursor *c, uint8_t enc, uint64_t data_base)
{
	const uint64_t here = c->vaddr;
	const uint64_t v = take_value(c, enc);

	switch (enc & PE_BASE) {
	case 0:
		return v;
	case PE_PCREL:
		return here + v;
	case PE_DATAREL:
		return data_base + v;
	default:
		c->bad = true;
		return 0;
	}
}

/* --- finding an entry -------------------------------------------------------------------------- */

/* The last entry of the sorted table of .eh_frame_hdr whose function begins at or before the address. */
static int search(const struct dl_elf *e, uint64_t vaddr, uint64_t *ret_fde)
{
	struct { int32_t start, fde; } at = {};
	uint64_t lo = 0, hi, table, cnt;
	uint8_t buf[32], cnt_enc;
	struct cursor c = { .p = buf, .vaddr = e->eh_hdr_vaddr };

	if (e->eh_hdr_sz < 12)
		return -ENOENT;
	c.end = buf + read_at(e, e->eh_hdr_vaddr, buf, sizeof(buf));
	if (c.end - buf < 4 || buf[0] != 1)
		return -ENOEXEC;
	cnt_enc = buf[2];
	if (buf[3] != (PE_DATAREL | PE_S4))
		return -ENOENT;	/* no table, or of a form that no linker writes */
	take(&c, 4);
	take_pointer(&c, buf[1], e->eh_hdr_vaddr);
	cnt = take_pointer(&c, cnt_enc, e->eh_hdr_vaddr);
	table = c.vaddr;
	if (c.bad || cnt > e->eh_hdr_sz / sizeof(at))
		return -ENOEXEC;
	for (hi = cnt; lo < hi;) {
		const uint64_t mid = lo + (hi - lo) / 2;

		if (read_at(e, table + mid * sizeof(at), &at, sizeof(at)) != sizeof(at))
			return -ENOEXEC;
		if (e->eh_hdr_vaddr + (uint64_t)(int64_t)at.start <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return -ENOENT;
	if (read_at(e, table + (lo - 1) * sizeof(at), &at, sizeof(at)) != sizeof(at))
		return -ENOEXEC;
	*ret_fde = e->eh_hdr_vaddr + (uint64_t)(int64_t)at.fde;
	return 0;
}

/* An entry of .eh_frame, from behind its length on. */
static int read_entry(const struct dl_elf *e, uint64_t vaddr, uint8_t *buf, size_t max, struct cursor *ret)
{
	const size_t have = read_at(e, vaddr, buf, max);
	struct cursor c = { .p = buf, .end = buf + have, .vaddr = vaddr };
	const uint64_t len = take(&c, 4);

	/* 64-bit entries (0xffffffff) are written by no compiler for these machines */
	if (c.bad || len < 4 || len > max - 4 || len > have - 4)
		return -ENOEXEC;
	c.end = c.p + len;
	*ret = c;
	return 0;
}

static int read_augmentation(struct cursor *c, const char *aug, struct dl_cfi_row *row, struct cie *cie)
{
	const uint64_t len = take_uleb(c);
	struct cursor data = *c;

	if (!take_bytes(c, len))
		return -ENOEXEC;
	data.end = data.p + len;
	for (aug++; *aug; aug++) {
		uint8_t enc;

		switch (*aug) {
		case 'L':
			take(&data, 1);
			break;
		case 'P':
			enc = (uint8_t)take(&data, 1);
			take_value(&data, enc);
			break;
		case 'R':
			cie->fde_enc = (uint8_t)take(&data, 1);
			break;
		case 'S':
			row->signal = true;
			break;
		case 'B':	/* arm64: signed with the other key */
			break;
		default:	/* what is not known has its length told, and comes last */
			return data.bad ? -ENOEXEC : 0;
		}
	}
	return data.bad ? -ENOEXEC : 0;
}

static int read_cie(const struct dl_elf *e, uint64_t vaddr, struct dl_cfi_row *row, struct cie *cie)
{
	const char *aug;
	struct cursor c;
	uint64_t version, ra;
	int err;

	err = read_entry(e, vaddr, row->cie, sizeof(row->cie), &c);
	if (err)
		return err;
	if (take(&c, 4))	/* it is no CIE */
		return -ENOEXEC;
	version = take(&c, 1);
	aug = (const char *)c.p;
	if (!take_bytes(&c, strnlen(aug, (size_t)(c.end - c.p)) + 1))
		return -ENOEXEC;
	if ((version != 1 && version != 3 && version != 4) || (*aug && *aug != 'z'))
		return -ENOEXEC;
	if (version == 4 && (take(&c, 1) != 8 || take(&c, 1)))	/* sizes of addresses and of segment selectors */
		return -ENOEXEC;
	cie->code_align = take_uleb(&c);
	cie->data_align = take_sleb(&c);
	ra = version == 1 ? take(&c, 1) : take_uleb(&c);
	if (c.bad || ra >= DL_CFI_REGS)
		return -ENOEXEC;
	row->ra = (uint8_t)ra;
	cie->has_aug = *aug == 'z';
	err = cie->has_aug ? read_augmentation(&c, aug, row, cie) : 0;
	cie->insns = c;
	return err;
}

/* --- interpreting ------------------------------------------------------------------------------ */

struct machine {
	struct dl_cfi_rules now, initial, remembered[REMEMBERED_MAX];
	int depth;
	const struct cie *cie;
	struct dl_cfi_row *row;
};

static void set(struct machine *m, uint64_t reg, struct dl_cfi_rule rule)
{
	if (reg < DL_CFI_REGS)	/* others (vector registers) are stepped over */
		m->now.reg[reg] = rule;
}

static void restore(struct machine *m, uint64_t reg)
{
	if (reg < DL_CFI_REGS)
		m->now.reg[reg] = m->initial.reg[reg];
}

static struct dl_cfi_rule offset(const struct machine *m, enum dl_cfi_how how, uint64_t factored)
{
	return (struct dl_cfi_rule){ .how = (uint8_t)how, .off = (int64_t)(factored * (uint64_t)m->cie->data_align) };
}

static struct dl_cfi_rule expression(struct cursor *c, enum dl_cfi_how how)
{
	const uint64_t sz = take_uleb(c);
	const uint8_t *p = take_bytes(c, sz);

	if (sz > UINT16_MAX)
		c->bad = true;
	return (struct dl_cfi_rule){ .how = (uint8_t)how, .expr = p, .expr_sz = (uint16_t)sz };
}

static void def_cfa(struct machine *m, struct cursor *c, uint64_t reg, uint64_t off)
{
	if (reg >= DL_CFI_REGS)
		c->bad = true;
	else
		m->now.cfa = (struct dl_cfi_rule){ .how = DL_CFI_REG, .reg = (uint8_t)reg, .off = (int64_t)off };
}

static void cfa_part(struct machine *m, struct cursor *c, uint8_t op)
{
	const uint64_t align = (uint64_t)m->cie->data_align;
	uint64_t reg;

	switch (op) {
	case OP_DEF_CFA:
		reg = take_uleb(c);
		def_cfa(m, c, reg, take_uleb(c));
		return;
	case OP_DEF_CFA_SF:
		reg = take_uleb(c);
		def_cfa(m, c, reg, (uint64_t)take_sleb(c) * align);
		return;
	case OP_DEF_CFA_REG:
		def_cfa(m, c, take_uleb(c), (uint64_t)m->now.cfa.off);
		return;
	case OP_DEF_CFA_OFF:
		m->now.cfa.off = (int64_t)take_uleb(c);
		return;
	case OP_DEF_CFA_OFF_SF:
		m->now.cfa.off = (int64_t)((uint64_t)take_sleb(c) * align);
		return;
	default:
		m->now.cfa = expression(c, DL_CFI_VAL_EXPR);
	}
}

static void reg_part(struct machine *m, struct cursor *c, uint8_t op)
{
	const uint64_t reg = take_uleb(c);
	uint64_t other;

	switch (op) {
	case OP_OFFSET_EXT:
		set(m, reg, offset(m, DL_CFI_OFFSET, take_uleb(c)));
		return;
	case OP_OFFSET_EXT_SF:
		set(m, reg, offset(m, DL_CFI_OFFSET, (uint64_t)take_sleb(c)));
		return;
	case OP_NEG_OFFSET_EXT:
		set(m, reg, offset(m, DL_CFI_OFFSET, 0 - take_uleb(c)));
		return;
	case OP_VAL_OFFSET:
		set(m, reg, offset(m, DL_CFI_VAL_OFFSET, take_uleb(c)));
		return;
	case OP_VAL_OFFSET_SF:
		set(m, reg, offset(m, DL_CFI_VAL_OFFSET, (uint64_t)take_sleb(c)));
		return;
	case OP_EXPR:
		set(m, reg, expression(c, DL_CFI_EXPR));
		return;
	case OP_VAL_EXPR:
		set(m, reg, expression(c, DL_CFI_VAL_EXPR));
		return;
	case OP_REGISTER:
		other = take_uleb(c);
		set(m, reg, (struct dl_cfi_rule){ .how = other < DL_CFI_REGS ? DL_CFI_REG : DL_CFI_UNDEFINED,
						  .reg = (uint8_t)other });
		return;
	case OP_RESTORE_EXT:
		restore(m, reg);
		return;
	case OP_UNDEFINED:
		set(m, reg, (struct dl_cfi_rule){ .how = DL_CFI_UNDEFINED });
		return;
	default:
		set(m, reg, (struct dl_cfi_rule){ .how = DL_CFI_SAME });
	}
}

static void state_part(struct machine *m, struct cursor *c, uint8_t op)
{
	if (op == OP_REMEMBER && m->depth < REMEMBERED_MAX)
		m->remembered[m->depth++] = m->now;
	else if (op == OP_RESTORE_STATE && m->depth)
		m->now = m->remembered[--m->depth];
	else
		c->bad = true;
}

/* True: *ret is how far the instruction moves on. */
static bool is_advance(const struct machine *m, struct cursor *c, uint8_t op, uint64_t *ret)
{
	uint64_t by;

	if ((op & 0xc0) == OP_ADVANCE)
		by = op & 0x3f;
	else if (op >= OP_ADVANCE1 && op <= OP_ADVANCE4)
		by = take(c, op == OP_ADVANCE1 ? 1 : op == OP_ADVANCE2 ? 2 : 4);
	else
		return false;
	*ret = by * m->cie->code_align;
	return true;
}

static void execute_one(struct machine *m, struct cursor *c, uint8_t op)
{
	if ((op & 0xc0) == OP_OFFSET) {
		set(m, op & 0x3f, offset(m, DL_CFI_OFFSET, take_uleb(c)));
	} else if ((op & 0xc0) == OP_RESTORE) {
		restore(m, op & 0x3f);
	} else if (op == OP_REMEMBER || op == OP_RESTORE_STATE) {
		state_part(m, c, op);
	} else if ((op >= OP_DEF_CFA && op <= OP_DEF_CFA_EXPR) || op == OP_DEF_CFA_SF || op == OP_DEF_CFA_OFF_SF) {
		cfa_part(m, c, op);
	} else if ((op >= OP_OFFSET_EXT && op <= OP_REGISTER) || op == OP_EXPR || op == OP_OFFSET_EXT_SF ||
		   (op >= OP_VAL_OFFSET && op <= OP_VAL_EXPR) || op == OP_NEG_OFFSET_EXT) {
		reg_part(m, c, op);
	} else if (op == OP_NEGATE_RA) {
		m->row->ra_signed = !m->row->ra_signed;
	} else if (op == OP_ARGS_SZ) {
		take_uleb(c);
	} else if (op != OP_NOP) {
		c->bad = true;
	}
}

/* Until the instructions for the address have been met. */
static int execute(struct machine *m, struct cursor c, uint64_t loc, uint64_t vaddr)
{
	while (c.p < c.end && !c.bad) {
		const uint8_t op = (uint8_t)take(&c, 1);
		uint64_t by;

		if (op == OP_SET_LOC) {
			loc = take_pointer(&c, m->cie->fde_enc, 0);
			if (loc > vaddr)
				break;
		} else if (is_advance(m, &c, op, &by)) {
			if (by > vaddr - loc)
				break;
			loc += by;
		} else {
			execute_one(m, &c, op);
		}
	}
	return c.bad ? -ENOEXEC : 0;
}

int dl_cfi_find(struct dl_cfi_row *ret, const struct dl_elf *e, uint64_t vaddr)
{
	struct machine m = { .row = ret };
	struct cie cie = {};
	struct cursor c;
	uint64_t fde, id, id_vaddr;
	int err;

	m.cie = &cie;
	ret->signal = ret->ra_signed = false;
	err = search(e, vaddr, &fde);
	if (!err)
		err = read_entry(e, fde, ret->fde, sizeof(ret->fde), &c);
	if (err)
		return err;
	id_vaddr = c.vaddr;
	id = take(&c, 4);
	if (!id)	/* a CIE: no entry for a function */
		return -ENOEXEC;
	err = read_cie(e, id_vaddr - id, ret, &cie);
	if (err)
		return err;
	ret->start = take_pointer(&c, cie.fde_enc, 0);
	ret->end = ret->start + take_value(&c, cie.fde_enc);
	if (cie.has_aug)
		take_bytes(&c, take_uleb(&c));
	if (c.bad)
		return -ENOEXEC;
	if (vaddr < ret->start || vaddr >= ret->end)
		return -ENOENT;
	err = execute(&m, cie.insns, ret->start, UINT64_MAX);
	m.initial = m.now;
	if (!err)
		err = execute(&m, c, ret->start, vaddr);
	ret->rules = m.now;
	return err;
}
