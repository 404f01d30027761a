/* SPDX-License-Identifier: Apache-2.0
 * A libcuda.so.1 that knows one thing: whether streams are being captured. quick_streams_test.py
 * loads it before the C module of the Python package looks for the driver. */
int attune_stub_status;    /* what cuStreamIsCapturing returns */
int attune_stub_capturing; /* and says */
void* attune_stub_stream;  /* the stream that it was asked about last */

int cuStreamIsCapturing(void* stream, int* status) {
  attune_stub_stream = stream;
  *status = attune_stub_capturing;
  return attune_stub_status;
}
