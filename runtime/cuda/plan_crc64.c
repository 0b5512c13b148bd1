#include "plan_crc64.h"

#include "plan_format.h"

/* The polynomial of ECMA-182, reflected: that of CRC-64/XZ. */
#define POLYNOMIAL UINT64_C(0xc96c5795d7870f42)

/* The tables serve eight bytes at a time ("slicing-by-8", Kounavis and Berry,
 * 2005). They are made anew for each call: that costs less than summing a page,
 * and needs no state that threads share. */
static void make_tables(uint64_t t[8][256]) {
  for (unsigned i = 0; i < 256; i++) {
    uint64_t c = i;
    for (int bit = 0; bit < 8; bit++)
      c = c & 1 ? c >> 1 ^ POLYNOMIAL : c >> 1;
    t[0][i] = c;
  }
  for (int k = 1; k < 8; k++)
    for (int i = 0; i < 256; i++)
      t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
}

uint64_t sp_crc64(uint64_t sum, const uint8_t *data, size_t length) {
  uint64_t t[8][256];
  make_tables(t);
  uint64_t c = ~sum;
  while (length >= 8) {
    c ^= sp_le64(data);
    c = t[7][c & 255] ^ t[6][c >> 8 & 255] ^ t[5][c >> 16 & 255] ^ t[4][c >> 24 & 255] ^
        t[3][c >> 32 & 255] ^ t[2][c >> 40 & 255] ^ t[1][c >> 48 & 255] ^ t[0][c >> 56];
    data += 8;
    length -= 8;
  }
  while (length-- > 0)
    c = t[0][(c ^ *data++) & 255] ^ c >> 8;
  return ~c;
}
