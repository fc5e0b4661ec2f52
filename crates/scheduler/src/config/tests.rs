use super::*;
use crate::profile::Patience;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn read(rest: &str) -> Result<Configuration, String> {
    Configuration::read(&format!("{HEAD}{rest}")).map_err(|error| match &error {
        Error::Decode(cause) => cause.to_string(),
        _ => error.to_string(),
    })
}

fn parse_error(rest: &str) -> String {
    read(rest).err().unwrap_or_default()
}

fn weight(configuration: &Configuration, plugin: &str) -> Option<i64> {
    let plugins = &configuration.profiles[0].plugins;
    plugins.iter().find(|enabled| enabled.plugin.name() == plugin).map(|enabled| enabled.weight)
}

#[test]
fn empty_configuration_gets_upstream_defaults() {
    let read = read("").unwrap();
    assert_eq!((read.parallelism, read.queue), (16, Options::default()));
    assert_eq!(read.client, Configuration::default().client);
    assert_eq!(read.election, Configuration::default().election);
    assert_eq!(read.profiles[0].scheduler_name, "default-scheduler");
    let (actual, defaults) = (&read.profiles[0].plugins, &Profile::default().plugins);
    let describe = |list: &[EnabledPlugin]| {
        let mut all: Vec<_> = list.iter().map(|it| (it.plugin.name(), it.weight)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(describe(actual), describe(defaults));
}

#[test]
fn compare_defaults_with_those_printed_by_upstream() {
    let text = std::fs::read_to_string(test_requirements::upstream("reference/scheduler-defaults.yaml")).unwrap();
    let read = Configuration::read(&text).unwrap();
    assert_eq!(read.election, Configuration::default().election);
    assert_eq!(weight(&read, "TaintToleration"), Some(3));
    assert_eq!(read.profiles[0].preemption, Some(crate::plugins::DefaultPreemption::default()));
}

#[test]
fn unknown_fields_duplicates_and_wrong_types_are_rejected() {
    assert_eq!(parse_error("foo: 1"), "strict decoding error: unknown field \"foo\"");
    assert_eq!(
        parse_error("profiles: [{plugins: {filter: {enable: []}}}]"),
        "strict decoding error: unknown field \"profiles[0].plugins.filter.enable\""
    );
    assert!(parse_error("parallelism: 1\nparallelism: 2").contains("already set in map"));
    assert!(parse_error("parallelism: many").contains("parallelism"), "{}", parse_error("parallelism: many"));
    let other =
        Configuration::read("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration");
    assert_eq!(
        other.err().unwrap().to_string(),
        "no kind \"KubeSchedulerConfiguration\" is registered for version \"kubescheduler.config.k8s.io/v1beta3\""
    );
    assert_eq!(
        parse_error("profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {x: 1}}]}]"),
        "strict decoding error: unknown field \"x\""
    );
}

#[test]
fn validation_reports_all_values_out_of_bounds() {
    let check = |rest: &str, expect: &str| assert_eq!(parse_error(rest), expect);
    check("parallelism: 0", "parallelism: Invalid value: 0: should be an integer value greater than zero");
    check("percentageOfNodesToScore: 101", "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]");
    check(
        "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 2",
        "podMaxBackoffSeconds: Invalid value: 2: must be greater than or equal to PodInitialBackoffSeconds",
    );
    check(
        "profiles: [{schedulerName: a}, {schedulerName: a}]",
        "profiles[1].schedulerName: Duplicate value: \"profiles[0].schedulerName\"",
    );
    check(
        "leaderElection: {leaderElect: true, resourceLock: endpoints}",
        "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
    );
    check(
        "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}, {name: InterPodAffinity}]}]",
        "[profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100], \
         profiles[0].pluginConfig[1]: Duplicate value: \"InterPodAffinity\"]",
    );
    check(
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio}}}]}]",
        "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio: Required value: must be specified \
         when type is RequestedToCapacityRatio",
    );
    check(
        "profiles: [{pluginConfig: [{name: DynamicResources, args: {bindingTimeout: 10ms, filterTimeout: -1s}}]}]",
        "[profiles[0].pluginConfig[0].args.filterTimeout: Invalid value: \"-1s\": must be zero or positive, \
         profiles[0].pluginConfig[0].args.bindingTimeout: Invalid value: \"10ms\": must be at least 1 second]",
    );
    check(
        "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: System, defaultConstraints: \
         [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}]}}]}]",
        "[profiles[0].pluginConfig[0].args.defaultingType: Invalid value: \"System\": when .defaultConstraints are not \
         empty, profiles[0].pluginConfig[0].args.defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Never\": \
         supported values: \"DoNotSchedule\", \"ScheduleAnyway\"]",
    );
}

#[test]
fn profiles_differ_in_plugins_weights_and_arguments() {
    let text = "
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
clientConnection: {qps: 7.5, burst: 9}
leaderElection: {leaderElect: false, leaseDuration: 1m}
profiles:
- schedulerName: packing
  percentageOfNodesToScore: 50
  plugins:
    postFilter: {disabled: [{name: '*'}]}
    score: {enabled: [{name: NodeResourcesFit, weight: 9}]}
    multiPoint: {disabled: [{name: ImageLocality}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 7}
  - name: DynamicResources
    args: {bindingTimeout: 1m30s, filterTimeout: 5s}
- schedulerName: other
";
    let read = read(text).unwrap();
    assert_eq!((read.queue.backoff_initial, read.queue.backoff_max), (2_000, 20_000));
    assert_eq!((read.client.qps, read.client.burst), (7.5, 9));
    assert_eq!((read.election.enabled, read.election.lease_duration), (false, Duration::from_secs(60)));
    let names: Vec<_> = read.profiles.iter().map(|profile| profile.scheduler_name.as_str()).collect();
    assert_eq!(names, ["packing", "other"]);
    assert_eq!((weight(&read, "NodeResourcesFit"), weight(&read, "ImageLocality")), (Some(9), None));
    assert_eq!(read.profiles[0].percentage_of_nodes_to_score, 50);
    assert_eq!(read.profiles[1].percentage_of_nodes_to_score, 30);
    assert!(read.profiles[0].preemption.is_none() && read.profiles[1].preemption.is_some());
    let timeouts = Patience { volumes: Duration::from_secs(7), devices: Duration::from_secs(90) };
    assert_eq!(read.profiles[0].timeouts, timeouts);
    assert_eq!(read.profiles[1].timeouts, Patience::default());
}

#[test]
fn extenders_are_decoded_and_validated() {
    let config = read(
        "extenders:\n- urlPrefix: http://127.0.0.1:1/x\n  filterVerb: f\n  prioritizeVerb: p\n  weight: 2\n  \
         httpTimeout: 5s\n  nodeCacheCapable: true\n  managedResources: [{name: a.io/x, ignoredByScheduler: true}]\n",
    );
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    let extender = &config.extenders[0];
    assert_eq!((extender.weight, extender.timeout.as_secs(), extender.knows_nodes), (2, 5, true));
    assert_eq!(extender.uncounted, ["a.io/x"]);
    assert!(config.profiles[0].plugins.iter().any(|it| it.plugin.name() == Extender::NAME));
    let check = |text: &str, expect: &str| match read(&format!("extenders:\n{text}")) {
        Ok(_) => panic!("{text} is taken"),
        Err(error) => assert!(error.contains(expect), "{error}"),
    };
    check("- {urlPrefix: http://a, prioritizeVerb: p}\n", "must have a positive weight applied to it");
    check("- {bindVerb: b}\n- {bindVerb: b}\n", "only one extender can implement bind");
    let twice = "- managedResources: [{name: a.io/x}, {name: a.io/x}]\n";
    check(twice, "duplicate extender managed resource name");
}
