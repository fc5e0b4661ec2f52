//! Tests of OCI specifications from CRI configurations.

use super::*;

fn inputs(config: &v1::ContainerConfig, image: &image_store::Config, check: impl FnOnce(Result<Value, SpecError>)) {
    inputs_with(&BTreeMap::new(), config, image, check);
}

fn inputs_with(
    groups: &BTreeMap<String, PathBuf>,
    config: &v1::ContainerConfig,
    image: &image_store::Config,
    check: impl FnOnce(Result<Value, SpecError>),
) {
    let sandbox = v1::PodSandboxConfig { hostname: "box".into(), ..Default::default() };
    let user = User::default();
    let (provided, prepared) = (BTreeMap::new(), BTreeMap::new());
    check(build(&Inputs {
        config,
        sandbox: &sandbox,
        image,
        user: &user,
        rootfs: Path::new("/rootfs"),
        cgroup: "/pod/c",
        groups,
        pause: 7,
        target: None,
        provided: &provided,
        prepared: &prepared,
        users: false,
        foreign: false,
        ulimits: &[],
    }));
}

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn commands_and_arguments_combine_as_kubernetes_documents() {
    let check = |command: &[&str], args: &[&str], expect: Option<&[&str]>| {
        let image = image_store::Config { entrypoint: strings(&["/ep"]), cmd: strings(&["cmd"]), ..Default::default() };
        let config = v1::ContainerConfig { command: strings(command), args: strings(args), ..Default::default() };
        inputs(&config, &image, |spec| match expect {
            Some(expect) => assert_eq!(spec.unwrap()["process"]["args"], json!(expect)),
            None => assert!(spec.is_err()),
        });
    };
    check(&[], &[], Some(&["/ep", "cmd"]));
    check(&[], &["x"], Some(&["/ep", "x"]));
    check(&["/c"], &[], Some(&["/c"]));
    check(&["/c"], &["x"], Some(&["/c", "x"]));
    inputs(&v1::ContainerConfig::default(), &image_store::Config::default(), |spec| {
        assert_eq!(spec.unwrap_err().to_string(), "no command specified");
    });
}

#[test]
fn container_variables_override_image_variables() {
    let image = image_store::Config { env: strings(&["A=1", "B=2"]), cmd: strings(&["x"]), ..Default::default() };
    let pair = |key: &str, value: &str| v1::KeyValue { key: key.into(), value: value.into() };
    let config = v1::ContainerConfig { envs: vec![pair("B", "3"), pair("C", "4=5")], ..Default::default() };
    inputs(&config, &image, |spec| {
        let spec = spec.unwrap();
        let env = spec["process"]["env"].as_array().unwrap();
        assert_eq!(env[1..], [json!("HOSTNAME=box"), json!("A=1"), json!("B=3"), json!("C=4=5")]);
    });
}

#[test]
fn namespaces_of_the_sandbox_are_joined() {
    let image = image_store::Config { cmd: strings(&["x"]), ..Default::default() };
    inputs(&v1::ContainerConfig::default(), &image, |spec| {
        let spec = spec.unwrap();
        let list = spec["linux"]["namespaces"].as_array().unwrap();
        assert!(list.contains(&json!({"type": "network", "path": "/proc/7/ns/net"})));
        assert!(list.contains(&json!({"type": "pid", "path": "/proc/7/ns/pid"})));
        assert!(list.contains(&json!({"type": "mount"})));
    });
}

#[test]
fn cgroup_v1_hierarchies_are_mounted_and_writable_only_if_privileged() {
    let cgroup_path = |name: &str| Path::new("/sys/fs/cgroup").join(name);
    let groups = ["cpu", "memory"].map(|name| (name.to_owned(), cgroup_path(name).join("pod/c")));
    let cgroup_mounts = |groups: &BTreeMap<String, PathBuf>, privileged: bool| -> Vec<String> {
        let security = v1::LinuxContainerSecurityContext { privileged, ..Default::default() };
        let linux = v1::LinuxContainerConfig { security_context: Some(security), ..Default::default() };
        let config = v1::ContainerConfig { linux: Some(linux), args: strings(&["x"]), ..Default::default() };
        let mut lines = Vec::new();
        inputs_with(groups, &config, &image_store::Config::default(), |spec| {
            let spec = spec.unwrap();
            let own = spec["mounts"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|mount| mount["destination"].as_str().unwrap().starts_with("/sys/fs/cgroup"));
            lines.extend(own.map(|mount| {
                let text = |field: &str| mount[field].as_str().unwrap();
                let last = mount["options"].as_array().unwrap().last().unwrap().as_str().unwrap();
                format!("{} {} {} {last}", text("destination"), text("type"), text("source"))
            }));
        });
        lines
    };
    let groups: BTreeMap<_, _> = groups.into_iter().collect();
    let expect = |writable: &str| {
        let bound = |name: &str| format!("/sys/fs/cgroup/{name} bind /sys/fs/cgroup/{name}/pod/c {writable}");
        vec!["/sys/fs/cgroup tmpfs tmpfs mode=755".to_owned(), bound("cpu"), bound("memory")]
    };
    assert_eq!(cgroup_mounts(&groups, false), expect("ro"));
    assert_eq!(cgroup_mounts(&groups, true), expect("rw"));
    assert_eq!(cgroup_mounts(&BTreeMap::new(), false), ["/sys/fs/cgroup cgroup cgroup ro"]);
}

#[test]
fn recursive_read_only_mounts_must_be_read_only_and_private() {
    let image = image_store::Config { cmd: strings(&["x"]), ..Default::default() };
    let check = |mount: v1::Mount, expect: Result<&str, &str>| {
        let config = v1::ContainerConfig { mounts: vec![mount], ..Default::default() };
        inputs(&config, &image, |spec| match (spec, expect) {
            (Ok(spec), Ok(option)) => {
                let options = &spec["linux"];
                assert!(options.is_object());
                let last = spec["mounts"].as_array().unwrap().last().unwrap().clone();
                assert!(last["options"].as_array().unwrap().contains(&json!(option)), "{last}");
            }
            (got, expect) => {
                assert_eq!(got.map(|_| "").map_err(|error| error.to_string()), expect.map_err(str::to_owned));
            }
        });
    };
    let mount = v1::Mount { container_path: "/data".into(), host_path: "/tmp".into(), ..Default::default() };
    check(mount.clone(), Ok("rw"));
    check(v1::Mount { readonly: true, ..mount.clone() }, Ok("ro"));
    check(v1::Mount { readonly: true, recursive_read_only: true, ..mount.clone() }, Ok("rro"));
    let expected_error = "mount /data: recursive_read_only needs readonly";
    check(v1::Mount { recursive_read_only: true, ..mount.clone() }, Err(expected_error));
    check(
        v1::Mount { container_path: "data".into(), ..mount },
        Err("mount destination \"data\" is not an absolute path"),
    );
}

#[test]
fn strongest_propagation_applies_and_weaker_mounts_are_bound_separately() {
    let image = image_store::Config { cmd: strings(&["x"]), ..Default::default() };
    let (none, down, both) = (
        v1::MountPropagation::PropagationPrivate,
        v1::MountPropagation::PropagationHostToContainer,
        v1::MountPropagation::PropagationBidirectional,
    );
    let check = |requested: &[v1::MountPropagation], root: &str, apart: &[(usize, v1::MountPropagation)]| {
        let mount = |propagation: &v1::MountPropagation| v1::Mount {
            container_path: "/data".into(),
            host_path: "/tmp".into(),
            propagation: (*propagation).into(),
            ..Default::default()
        };
        let config = v1::ContainerConfig { mounts: requested.iter().map(mount).collect(), ..Default::default() };
        inputs(&config, &image, |spec| assert_eq!(spec.unwrap()["linux"]["rootfsPropagation"], root, "{requested:?}"));
        assert_eq!(weaker(&config.mounts), apart.iter().copied().collect::<BTreeMap<_, _>>(), "{requested:?}");
    };
    check(&[], "private", &[]);
    check(&[none, none], "private", &[]);
    check(&[none, down], "slave", &[(0, none)]);
    check(&[down, both, none], "shared", &[(0, down), (2, none)]);
}
