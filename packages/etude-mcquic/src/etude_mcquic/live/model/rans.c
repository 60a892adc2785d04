/* The range coder of rans.py, compiled where there is a compiler: 64-bit rANS with words of 32 bits. The last place of a
   distribution stands for all other values, which follow it in pieces of 4 bits. */
#include <stdint.h>

#define LOWER (1ull << 31)
#define PRECISION 16
#define PIECE 4

typedef struct {
    const int32_t *values; /* one row of `width` values for each distribution */
    const int32_t *sizes;
    const int32_t *offsets;
    int64_t width;
} Tables;

static void put(uint64_t *state, uint32_t *out, int64_t *at, uint64_t start, uint64_t range, int bits)
{
    if (*state >= ((LOWER >> bits) << 32) * range) {
        out[--*at] = (uint32_t)*state;
        *state >>= 32;
    }
    *state = ((*state / range) << bits) + *state % range + start;
}

/* A piece is a symbol of 16 that are equally likely. */
static void put_piece(uint64_t *state, uint32_t *out, int64_t *at, uint32_t piece)
{
    put(state, out, at, piece, 1, PIECE);
}

static int take(uint64_t *state, const uint32_t *words, int64_t size, int64_t *at)
{
    if (*state >= LOWER)
        return 0;
    if (*at == size)
        return -1;
    *state = *state << 32 | words[(*at)++];
    return 0;
}

static int take_piece(uint64_t *state, const uint32_t *words, int64_t size, int64_t *at, uint32_t *piece)
{
    *piece = (uint32_t)*state & ((1u << PIECE) - 1);
    *state >>= PIECE;
    return take(state, words, size, at);
}

/* Writes words from the end of `out` (which has room for `room`), and returns the number of the first one. */
int64_t encode(const int32_t *symbols, const int32_t *indexes, int64_t count, const Tables *tables, uint32_t *out,
               int64_t room)
{
    uint64_t state = LOWER;
    int64_t at = room;
    for (int64_t i = count - 1; i >= 0; --i) {
        const int32_t *cdf = tables->values + indexes[i] * tables->width;
        int32_t most = tables->sizes[indexes[i]] - 2;
        int64_t value = (int64_t)symbols[i] - tables->offsets[indexes[i]];
        if (value < 0 || value >= most) {
            uint32_t raw = (uint32_t)(value < 0 ? -2 * value - 1 : 2 * (value - most));
            uint32_t pieces = 0;
            while (pieces < 8 && raw >> (pieces * PIECE))
                ++pieces;
            for (int64_t j = (int64_t)pieces - 1; j >= 0; --j)
                put_piece(&state, out, &at, raw >> (j * PIECE) & ((1u << PIECE) - 1));
            put_piece(&state, out, &at, pieces);
            value = most;
        }
        put(&state, out, &at, (uint64_t)cdf[value], (uint64_t)(cdf[value + 1] - cdf[value]), PRECISION);
    }
    out[--at] = (uint32_t)(state >> 32);
    out[--at] = (uint32_t)state;
    return at;
}

/* Returns 0, or -1 if the words end too early. */
int64_t decode(const uint32_t *words, int64_t size, const int32_t *indexes, int64_t count, const Tables *tables,
               int32_t *out)
{
    if (size < 2)
        return -1;
    uint64_t state = words[0] | (uint64_t)words[1] << 32;
    int64_t at = 2;
    for (int64_t i = 0; i < count; ++i) {
        const int32_t *cdf = tables->values + indexes[i] * tables->width;
        int32_t seen = (int32_t)(state & ((1u << PRECISION) - 1));
        int32_t low = 0, high = tables->sizes[indexes[i]] - 1, most = high - 1;
        while (high - low > 1) {
            int32_t middle = (low + high) / 2;
            if (cdf[middle] <= seen)
                low = middle;
            else
                high = middle;
        }
        state = (uint64_t)(cdf[low + 1] - cdf[low]) * (state >> PRECISION) + (uint64_t)(seen - cdf[low]);
        if (take(&state, words, size, &at))
            return -1;
        if (low == most) {
            uint32_t pieces, piece, raw = 0;
            if (take_piece(&state, words, size, &at, &pieces))
                return -1;
            for (uint32_t j = 0; j < pieces; ++j) {
                if (take_piece(&state, words, size, &at, &piece))
                    return -1;
                raw |= j < 8 ? piece << (j * PIECE) : 0;
            }
            low = raw & 1 ? -(int32_t)(raw >> 1) - 1 : (int32_t)(raw >> 1) + most;
        }
        out[i] = low + tables->offsets[indexes[i]];
    }
    return 0;
}
