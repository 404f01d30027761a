/* SPDX-License-Identifier: Apache-2.0
 * Schedules of groups through the C interface: the text fits its size, is the same each time and
 * bad arguments are refused. tests/generator/core/group checks the schedules themselves.
 */
#include <attune/attune_group.h>

#include "check.h"

int main(void) {
  attune_problem whole;
  char text[4096], again[4096];
  size_t bytes = 0;
  const char* request = "world=2,rank=1,layout=zigzag,algorithm=gather";
  CHECK_OK(attune_problem_parse(
      "dtype=bf16,head_dim=64,heads=4/2,seqlen=512,mask=causal_bottom_right", &whole));
  CHECK_OK(attune_group_schedule(&whole, request, NULL, 0, &bytes));
  CHECK(bytes > 1 && bytes <= sizeof text);
  CHECK_OK(attune_group_schedule(&whole, request, text, bytes, NULL));
  CHECK(strlen(text) + 1 == bytes);
  CHECK(strstr(text, "layout 0-128+384-512/128-384\nalgorithm gather\nforward 131072 65536\n") ==
        text);
  CHECK(strstr(text, "\nlaunch 1 128 384 0 384 0 4 -1 0\n") != NULL);
  CHECK(strstr(text, "\nbackward 262144 327680\n") != NULL);
  CHECK_OK(attune_group_schedule(&whole, request, again, sizeof again, &bytes));
  CHECK(strcmp(text, again) == 0);

  /* A text that does not fit is not written. */
  again[0] = 'x';
  CHECK_OK(attune_group_schedule(&whole, request, again, bytes - 1, &bytes));
  CHECK(again[0] == 'x');

  CHECK_REFUSED(attune_group_schedule(NULL, request, NULL, 0, NULL), ATTUNE_INVALID_ARGUMENT,
                "problem is a null pointer");
  CHECK_REFUSED(attune_group_schedule(&whole, NULL, NULL, 0, NULL), ATTUNE_INVALID_ARGUMENT,
                "request is a null pointer");
  CHECK_REFUSED(attune_group_schedule(&whole, request, NULL, 5, NULL), ATTUNE_INVALID_ARGUMENT,
                "text is a null pointer");
  CHECK_REFUSED(attune_group_schedule(&whole, "rank=0", NULL, 0, NULL), ATTUNE_INVALID_ARGUMENT,
                "world is \"0\"");
  CHECK_REFUSED(attune_group_schedule(&whole, "world=3,rank=0,algorithm=exchange", NULL, 0, NULL),
                ATTUNE_UNSUPPORTED, "4/2 heads on 3 ranks");
  return finish();
}
