// SPDX-License-Identifier: Apache-2.0
// Views, for people and programs that read a store with SQL. VIEWS.md explains each column. attune
// itself reads only tables, and never runs a view of a file that it opens.
#include "cache/schema.hpp"

namespace attune {

// Each view is dropped first: views are made again with each version of the schema, and a store in
// which a user took one of these names can still be migrated. Views use only functions of all
// SQLite builds.
const char* const kViews = R"sql(
DROP VIEW IF EXISTS v_winner;
CREATE VIEW v_winner AS
SELECT w.id AS winner_id, p.text AS problem, s.text AS shape, d.name AS device,
       d.digest AS device_digest, c.template_name AS template, w.arch AS arch, w.config AS config,
       w.median_us AS median_us, w.lo_us AS lo_us, w.hi_us AS hi_us, w.samples AS samples,
       w.default_config AS default_config, w.default_median_us AS default_median_us,
       w.default_lo_us AS default_lo_us, w.default_hi_us AS default_hi_us,
       w.default_median_us / w.median_us AS gain,
       w.default_lo_us / w.hi_us AS gain_lo, w.default_hi_us / w.lo_us AS gain_hi,
       w.default_is_winner AS default_is_winner,
       CASE w.effort WHEN 1 THEN 'quick' WHEN 2 THEN 'normal' WHEN 3 THEN 'exhaustive'
                     ELSE w.effort END AS effort,
       w.candidates AS candidates, w.complete AS complete, w.pinned AS pinned, w.why AS why,
       w.driver AS driver, c.compiler AS compiler, c.template_digest AS template_digest,
       w.policy AS policy, w.created AS created,
       julianday('now') - julianday(w.created) AS age_days,
       nullif(w.power_limit_w, 0) AS power_limit_w,
       w.hi_us - w.lo_us > 0.2 * w.median_us AS noisy,
       w.default_hi_us - w.default_lo_us > 0.2 * w.default_median_us AS default_noisy
FROM winner w
JOIN problem p ON p.id = w.problem_id
JOIN shape s ON s.id = w.shape_id
JOIN device d ON d.id = w.device_id
JOIN toolchain c ON c.id = w.toolchain_id;

DROP VIEW IF EXISTS v_trial;
CREATE VIEW v_trial AS
SELECT t.id AS trial_id, p.text AS problem, s.text AS shape, d.name AS device,
       d.digest AS device_digest, c.template_name AS template, t.arch AS arch, t.config AS config,
       t.is_default AS is_default,
       CASE t.status WHEN 0 THEN 'ok' WHEN 1 THEN 'compile_failed' WHEN 2 THEN 'out_of_resources'
                     WHEN 3 THEN 'launch_failed' WHEN 4 THEN 'wrong_result' WHEN 5 THEN 'timed_out'
                     ELSE t.status END AS status,
       t.reason AS reason, t.median_us AS median_us, t.lo_us AS lo_us, t.hi_us AS hi_us,
       t.samples AS samples,
       t.median_us / min(CASE WHEN t.status = 0 THEN t.median_us END)
         OVER (PARTITION BY t.problem_id, t.shape_id, t.device_id, t.policy) AS to_best,
       CASE WHEN instr(t.info, '"registers":') > 0
            THEN CAST(substr(t.info, instr(t.info, '"registers":') + 12) AS INTEGER) END
         AS registers,
       CASE WHEN instr(t.info, '"spill_store_bytes":') > 0
            THEN CAST(substr(t.info, instr(t.info, '"spill_store_bytes":') + 20) AS INTEGER) END
         + CASE WHEN instr(t.info, '"spill_load_bytes":') > 0
            THEN CAST(substr(t.info, instr(t.info, '"spill_load_bytes":') + 19) AS INTEGER) END
         AS spill_bytes,
       t.shared_bytes AS shared_bytes, t.error_max AS error_max, t.sm_clock_mhz AS sm_clock_mhz,
       t.driver AS driver, c.compiler AS compiler, c.template_digest AS template_digest,
       t.policy AS policy, t.created AS created, nullif(t.power_limit_w, 0) AS power_limit_w,
       t.hi_us - t.lo_us > 0.2 * t.median_us AS noisy
FROM trial t
JOIN problem p ON p.id = t.problem_id
JOIN shape s ON s.id = t.shape_id
JOIN device d ON d.id = t.device_id
JOIN toolchain c ON c.id = t.toolchain_id;

DROP VIEW IF EXISTS v_failure;
CREATE VIEW v_failure AS
SELECT c.template_name AS template,
       CASE t.status WHEN 1 THEN 'compile_failed' WHEN 2 THEN 'out_of_resources'
                     WHEN 3 THEN 'launch_failed' WHEN 4 THEN 'wrong_result' WHEN 5 THEN 'timed_out'
                     ELSE t.status END AS status,
       CASE WHEN instr(t.reason, char(10)) > 0
            THEN substr(t.reason, 1, instr(t.reason, char(10)) - 1) ELSE t.reason END AS reason,
       count(*) AS trials, count(DISTINCT t.problem_id) AS problems,
       min(t.config) AS example_config,
       min(p.text) AS example_problem, max(t.created) AS last_created
FROM trial t
JOIN toolchain c ON c.id = t.toolchain_id
JOIN problem p ON p.id = t.problem_id
WHERE t.status <> 0
GROUP BY 1, 2, 3;

DROP VIEW IF EXISTS v_stale;
CREATE VIEW v_stale AS
WITH newest_text AS (
  SELECT template_name, template_digest, max(created)
  FROM (SELECT c.template_name, c.template_digest, t.created
        FROM trial t JOIN toolchain c ON c.id = t.toolchain_id
        UNION ALL
        SELECT c.template_name, c.template_digest, w.created
        FROM winner w JOIN toolchain c ON c.id = w.toolchain_id)
  GROUP BY template_name),
newest_driver AS (
  SELECT device_id, driver, max(created)
  FROM (SELECT device_id, driver, created FROM trial
        UNION ALL SELECT device_id, driver, created FROM winner)
  WHERE driver <> '' GROUP BY device_id),
newest_limit AS (
  SELECT device_id, power_limit_w, max(created)
  FROM (SELECT device_id, power_limit_w, created FROM trial
        UNION ALL SELECT device_id, power_limit_w, created FROM winner)
  WHERE power_limit_w > 0 GROUP BY device_id)
SELECT w.id AS winner_id, p.text AS problem, s.text AS shape, d.name AS device,
       c.template_name AS template, w.config AS config,
       CASE WHEN c.template_digest <> n.template_digest AND instr(c.template_digest, '.') > 0
             AND substr(c.template_digest, 1, instr(c.template_digest, '.'))
               = substr(n.template_digest, 1, instr(c.template_digest, '.')) THEN 'text'
            WHEN c.template_digest <> n.template_digest THEN 'template'
            WHEN w.driver <> '' AND w.driver <> r.driver THEN 'driver'
            ELSE 'power_limit' END AS reason,
       CASE WHEN c.template_digest <> n.template_digest THEN c.template_digest
            WHEN w.driver <> '' AND w.driver <> r.driver THEN w.driver
            ELSE w.power_limit_w || ' W' END AS was,
       CASE WHEN c.template_digest <> n.template_digest THEN n.template_digest
            WHEN w.driver <> '' AND w.driver <> r.driver THEN r.driver
            ELSE l.power_limit_w || ' W' END AS now,
       w.created AS created
FROM winner w
JOIN problem p ON p.id = w.problem_id
JOIN shape s ON s.id = w.shape_id
JOIN device d ON d.id = w.device_id
JOIN toolchain c ON c.id = w.toolchain_id
LEFT JOIN newest_text n ON n.template_name = c.template_name
LEFT JOIN newest_driver r ON r.device_id = w.device_id
LEFT JOIN newest_limit l ON l.device_id = w.device_id
WHERE c.template_digest <> n.template_digest OR (w.driver <> '' AND w.driver <> r.driver)
   OR (w.power_limit_w > 0 AND w.power_limit_w <> l.power_limit_w);

DROP VIEW IF EXISTS v_knob_effect;
CREATE VIEW v_knob_effect AS
WITH RECURSIVE ratio AS (
  SELECT t.id AS id, c.template_name AS template, d.name AS device, t.status AS status,
         t.config AS config,
         t.median_us / min(CASE WHEN t.status = 0 THEN t.median_us END)
           OVER (PARTITION BY t.problem_id, t.shape_id, t.device_id, t.policy) AS to_best
  FROM trial t
  JOIN toolchain c ON c.id = t.toolchain_id
  JOIN device d ON d.id = t.device_id),
word (text, word, rest) AS (
  SELECT DISTINCT config, '', config || ',' FROM trial
  UNION ALL
  SELECT text, substr(rest, 1, instr(rest, ',') - 1), substr(rest, instr(rest, ',') + 1)
  FROM word WHERE rest <> '')
SELECT r.template AS template, r.device AS device,
       substr(k.word, 1, instr(k.word, '=') - 1) AS knob,
       substr(k.word, instr(k.word, '=') + 1) AS value,
       count(*) AS trials, sum(r.status <> 0) AS failed,
       avg(CASE WHEN r.status = 0 THEN r.to_best END) AS mean_to_best,
       min(CASE WHEN r.status = 0 THEN r.to_best END) AS least_to_best
FROM ratio r
JOIN word k ON k.text = r.config
WHERE instr(k.word, '=') > 1
GROUP BY 1, 2, 3, 4;

DROP VIEW IF EXISTS v_flip;
CREATE VIEW v_flip AS
SELECT * FROM (
  SELECT w.id AS winner_id, p.text AS problem, s.text AS shape, d.name AS device,
         lag(c.template_name) OVER story AS from_template, lag(w.config) OVER story AS from_config,
         lag(w.median_us) OVER story AS from_median_us, lag(w.created) OVER story AS from_created,
         c.template_name AS to_template, w.config AS to_config, w.median_us AS to_median_us,
         w.created AS to_created,
         w.lo_us <= lag(w.hi_us) OVER story AND w.hi_us >= lag(w.lo_us) OVER story AS overlap
  FROM winner w
  JOIN problem p ON p.id = w.problem_id
  JOIN shape s ON s.id = w.shape_id
  JOIN device d ON d.id = w.device_id
  JOIN toolchain c ON c.id = w.toolchain_id
  WHERE w.pinned = 0
  WINDOW story AS (PARTITION BY w.problem_id, w.shape_id, w.device_id ORDER BY w.created, w.id))
WHERE from_config IS NOT NULL AND (from_config <> to_config OR from_template <> to_template);

DROP VIEW IF EXISTS v_runner_up;
CREATE VIEW v_runner_up AS
SELECT winner_id, problem, shape, device, config, median_us, runner_up_template, runner_up_config,
       runner_up_us, runner_up_us / median_us - 1 AS distance, runner_up_lo_us <= hi_us AS overlap
FROM (
  SELECT w.id AS winner_id, p.text AS problem, s.text AS shape, d.name AS device,
         w.config AS config, w.median_us AS median_us, w.hi_us AS hi_us,
         c.template_name AS runner_up_template, t.config AS runner_up_config,
         t.median_us AS runner_up_us, t.lo_us AS runner_up_lo_us,
         row_number() OVER (PARTITION BY w.id ORDER BY t.median_us, t.id) AS place
  FROM winner w
  JOIN problem p ON p.id = w.problem_id
  JOIN shape s ON s.id = w.shape_id
  JOIN device d ON d.id = w.device_id
  JOIN trial t ON t.problem_id = w.problem_id AND t.shape_id = w.shape_id
    AND t.device_id = w.device_id AND t.policy = w.policy AND t.created = w.created
    AND t.status = 0 AND (t.config <> w.config OR t.toolchain_id <> w.toolchain_id)
  JOIN toolchain c ON c.id = t.toolchain_id
  WHERE w.pinned = 0)
WHERE place = 1;
)sql";

}  // namespace attune
