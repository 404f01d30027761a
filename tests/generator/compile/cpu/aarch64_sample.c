/* SPDX-License-Identifier: Apache-2.0
 * elf_link_test compiles this for AArch64. It has calls, tables of addresses, constants of every
 * width, and a symbol whose address is loaded.
 */
typedef float vector __attribute__((vector_size(16)));

void* memcpy(void*, const void*, unsigned long);
float expf(float);

static float one(float x) { return x + 1; }
static float two(float x) { return x * 3.25f; }
static float (*const table[4])(float) = {one, two, expf, one};
__attribute__((weak)) long shared = 7;
static double sum;
static short small[5] = {1, 2, 3, 4, 5};

void entry(float* args, int thread, int num_threads) {
  vector v = {1, 2, 3, 5};
  memcpy(args, &v, sizeof v * (unsigned long)num_threads);
  for (int i = 0; i < num_threads; ++i)
    args[i] = table[(thread + i) & 3](args[i]) + (float)small[i % 5];
  sum += (double)args[0];
  args[1] = (float)(sum + (double)shared);
}
