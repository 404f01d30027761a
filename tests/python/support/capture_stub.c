/* SPDX-License-Identifier: Apache-2.0
 * A stub libcuda.so.1 that only reports if streams are being captured. quick_streams_test.py loads
 * it before the C module of the Python package looks for the driver. */
int attune_stub_status;    /* return value of cuStreamIsCapturing */
int attune_stub_capturing; /* capture status that it reports */
void* attune_stub_stream;  /* the last stream passed to it */

int cuStreamIsCapturing(void* stream, int* status) {
  attune_stub_stream = stream;
  *status = attune_stub_capturing;
  return attune_stub_status;
}
