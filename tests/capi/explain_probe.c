/* SPDX-License-Identifier: Apache-2.0
 * A program as others write it, for explain_matrix_test.py: asks for one plan with nothing but the
 * environment, and says what it got. Usage: explain_probe PROBLEM
 */
#include <attune/attune.h>
#include <stdio.h>

static const char* const kRungs[] = {"pinned",  "exact",          "bucket",
                                     "nearest", "default_config", "reference"};

static int failed(attune_status status) {
  printf("status %s\nmessage %s\n", attune_status_name(status), attune_last_error());
  return 0;
}

int main(int argc, char** argv) {
  attune_context_options options;
  attune_context* context;
  attune_problem problem;
  attune_plan* plan;
  attune_plan_info info = {.size = sizeof info};
  attune_status status;
  if (argc != 2) return 2;
  attune_context_options_init(&options);
  options.target = "cpu";
  if ((status = attune_context_create(&options, &context)) != ATTUNE_OK) return failed(status);
  if ((status = attune_problem_parse(argv[1], &problem)) != ATTUNE_OK) return failed(status);
  if ((status = attune_plan_get(context, &problem, NULL, &plan)) != ATTUNE_OK)
    return failed(status);
  if ((status = attune_plan_get_info(plan, &info)) != ATTUNE_OK) return failed(status);
  printf("status ok\nrung %s\ntemplate %s\nconfig %s\n", kRungs[info.rung], info.kernel_template,
         info.config);
  printf("%s", attune_plan_explain(plan));
  attune_plan_release(plan);
  attune_context_destroy(context);
  return 0;
}
